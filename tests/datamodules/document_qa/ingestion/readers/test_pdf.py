"""Tests pages of PDFs: text in reading order, exact tables, and positions of figures."""

import io

import pypdfium2
import pytest
from PIL import Image
from reportlab.lib.pdfencrypt import StandardEncryption
from reportlab.lib.styles import ParagraphStyle
from reportlab.pdfbase import pdfmetrics
from reportlab.pdfbase.cidfonts import UnicodeCIDFont

from datamodules.document_qa.ingestion.convert import convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.readers.pdf_text import join_lines
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.types.document import Document
from tests.support.data_files.pdf_files import draw_image, draw_table, draw_text, manual, sentence, write_pdf

SETTINGS = IngestionSettings(dpi=36)


@pytest.fixture
def read(tmp_path):
    """The document, or the reason why there is none."""

    def one(path, settings=SETTINGS, cache="cache"):
        cached = DocumentCache(tmp_path / cache, settings)
        done = convert_document(path, cached)
        found = cached.find_by_key(done.key, path.name)
        assert isinstance(found, str) == bool(done.broken)
        return found

    return one


def kinds(document, page=1):
    return [chunk.kind for chunk in document.pages[page - 1].chunks]


def test_chunks_of_a_page_are_in_reading_order(tmp_path, read):
    rows = [["No", "Part", "Mass"], ["1", "Drive shaft", "2.5 kg"], ["2", "", "75 g"]]

    def page(canvas):
        canvas.setFont("Helvetica-Bold", 18)
        canvas.drawString(60, 770, "Pump X-1")
        end = draw_text(canvas, " ".join(sentence(1, n) for n in range(6)), 100)
        end = draw_table(canvas, rows, end + 30)
        draw_image(canvas, "red", (100, end + 30, 300, end + 130))
        draw_text(canvas, "Below the figure.", end + 160)

    document: Document = read(write_pdf(tmp_path / "a.pdf", page))
    heading, text, table, figure, last = document.pages[0].chunks
    assert (heading.text, last.text) == ("Pump X-1", "Below the figure.")
    assert text.text == " ".join(sentence(1, n) for n in range(6)), "lines are one paragraph again"
    assert table == table._replace(kind="table", text="No | Part | Mass\n1 | Drive shaft | 2.5 kg\n2 |  | 75 g")
    assert figure == figure._replace(kind="figure", text="", page=1)
    assert set(document.figure(figure).resize((8, 8)).getcolors()) == {(64, (255, 0, 0))}
    assert document.picture(1).size == (298, 421)
    assert document.picture(1).mode == "RGB"
    for chunk, (left, right) in ((text, (60, 530)), (figure, (100, 300))):
        assert chunk.box[0] * 595.28 == pytest.approx(left, abs=1.5)
        assert chunk.box[2] * 595.28 == pytest.approx(right, abs=12 if chunk is text else 1.5)


@pytest.mark.parametrize("seed", range(12))
def test_ruled_tables_are_recovered_exactly(tmp_path, read, seed):
    rows = [
        [sentence(seed, row, column, words=1 + (row + column) % 3) for column in range(2 + seed % 4)]
        for row in range(2 + seed)
    ]
    path = write_pdf(tmp_path / "a.pdf", lambda canvas: draw_table(canvas, rows, 80, left=10))
    (table,) = read(path).pages[0].chunks
    assert table.text == "\n".join(" | ".join(row) for row in rows)


def test_tables_may_be_left_as_text(tmp_path, read):
    path = write_pdf(tmp_path / "a.pdf", lambda canvas: draw_table(canvas, [["a", "b"], ["c", "d"]], 80))
    assert kinds(read(path)) == ["table"]
    assert set(kinds(read(path, IngestionSettings(dpi=36, tables=False)))) == {"text"}


def test_a_page_without_text_is_one_figure(tmp_path, read):
    path = write_pdf(
        tmp_path / "a.pdf",
        lambda canvas: draw_image(canvas, "blue", (0, 0, 595, 842)),
        lambda canvas: None,
        lambda canvas: canvas.line(10, 10, 500, 700),
    )
    document = read(path)
    assert [[(chunk.kind, chunk.box) for chunk in page.chunks] for page in document.pages] == [
        [("figure", (0, 0, 1, 1))],
        [],
        [("figure", (0, 0, 1, 1))],
    ]


def test_drawings_are_figures_and_rules_are_not(tmp_path, read):
    def drawing(canvas):
        draw_text(canvas, "Figure 1", 60)
        for index in range(6):
            canvas.rect(100 + 32 * index, 500, 25, 30 + 10 * index)
            canvas.line(110 + 32 * index, 480, 120 + 32 * index, 500)

    def listing(canvas):
        canvas.setFillGray(0.9)
        for line in range(12):
            canvas.rect(60, 600 - 12 * line, 470, 12, stroke=0, fill=1)
        canvas.setFillGray(0)
        for line in range(12):
            canvas.drawString(64, 603 - 12 * line, "int x = 1;")

    def rules(canvas):
        draw_text(canvas, "Above", 60)
        for line in range(20):
            canvas.line(60, 300 + 9 * line, 500, 300 + 9 * line)
        canvas.rect(20, 20, 555, 800)

    document = read(write_pdf(tmp_path / "a.pdf", drawing, listing, rules))
    assert [kinds(document, page) for page in (1, 2, 3)] == [["text", "figure"], ["text"], ["text"]]
    left, top, right, bottom = document.pages[0].chunks[1].box
    expected = (100 / 595.28, 1 - 580 / 841.89, 285 / 595.28, 1 - 480 / 841.89)
    assert (left, top, right, bottom) == pytest.approx(expected, abs=0.01)


def test_small_images_are_symbols_within_the_text(tmp_path, read):
    def page(canvas):
        draw_text(canvas, "Warning", 60, left=100)
        draw_image(canvas, "red", (60, 60, 80, 80))

    assert kinds(read(write_pdf(tmp_path / "a.pdf", page))) == ["text"]


@pytest.mark.parametrize("turned", [0, 90, 180, 270])
@pytest.mark.parametrize("inside_of_a_form", [False, True])
def test_positions_are_those_of_the_page_as_displayed(tmp_path, read, turned, inside_of_a_form):
    def page(canvas):
        if inside_of_a_form:
            canvas.beginForm("form")
        draw_image(canvas, "red", (100, 100, 200, 180))
        draw_text(canvas, "Word", 300, left=300)
        draw_table(canvas, [["a", "b"], ["c", "d"]], 400, left=350)
        if inside_of_a_form:
            canvas.endForm()
            canvas.translate(20, -30)
            canvas.doForm("form")

    pdf = pypdfium2.PdfDocument(write_pdf(tmp_path / "a.pdf", page))
    pdf[0].set_rotation(turned)
    pdf[0].set_cropbox(50, 60, 560, 800)
    pdf.save(tmp_path / "b.pdf")
    pdf.close()
    document = read(tmp_path / "b.pdf", IngestionSettings(dpi=72))
    chunks = {chunk.kind: chunk for chunk in document.pages[0].chunks}
    assert set(chunks) == {"figure", "text", "table"}
    rows = {0: "a | b\nc | d", 90: "c | a\nd | b", 180: "d | c\nb | a", 270: "b | d\na | c"}
    assert chunks["table"].text == rows[turned]
    cut = document.figure(chunks["figure"])
    assert sorted(cut.size) == pytest.approx([80, 100], abs=2)
    middle = cut.crop((3, 3, cut.width - 3, cut.height - 3))
    assert middle.getcolors() == [(middle.width * middle.height, (255, 0, 0))]
    for kind in ("text", "table"):  # there are letters
        ink = document.figure(chunks[kind]).convert("L").point(lambda value: 255 * (value < 128)).getbbox()
        assert ink is not None
    assert max(document.figure(chunks["text"]).size) < 40


def test_columns_are_read_one_after_the_other(tmp_path, read):
    def page(canvas):
        draw_text(canvas, "Across both columns. " * 8, 50)
        for row in range(3):  # in another order than they are read in
            draw_text(canvas, f"Left {row}. " * 12, 100 + 80 * row, left=60, width=220)
            draw_text(canvas, f"Right {row}. " * 12, 100 + 80 * row, left=310, width=220)

    chunks = read(write_pdf(tmp_path / "a.pdf", page)).pages[0].chunks
    assert [" ".join(chunk.text.split()[:2]) for chunk in chunks] == [
        "Across both",
        *(f"Left {row}." for row in range(3)),
        *(f"Right {row}." for row in range(3)),
    ]


def test_chinese_gets_no_spaces_at_ends_of_lines(tmp_path, read):
    pdfmetrics.registerFont(UnicodeCIDFont("STSong-Light"))
    text = "电机位于泵的左侧并由三个螺栓固定" * 8
    style = ParagraphStyle("chinese", fontName="STSong-Light", fontSize=10, leading=13, wordWrap="CJK")
    path = write_pdf(tmp_path / "a.pdf", lambda canvas: draw_text(canvas, text, 60, style=style))
    (chunk,) = read(path).pages[0].chunks
    assert chunk.text == text


def test_words_split_over_lines_are_whole_again():
    assert join_lines(["the trans\x02", "former of a", "known kind\ufffe"]) == "the transformer of a known kind-"


def test_large_pages_get_fewer_pixels(tmp_path, read):
    settings = IngestionSettings(dpi=300, max_page_pixels=50_000)
    for size in ((2400, 3400), (14_000, 40), (1.5, 14_000)):
        path = write_pdf(tmp_path / f"{size[0]}.pdf", lambda canvas: canvas.rect(0, 0, 1, 10, fill=1), size=size)
        width, height = read(path, settings).picture(1).size
        assert 0 < width * height <= 50_000
        assert size[0] == 1.5 or width / height == pytest.approx(size[0] / size[1], rel=0.1)


def test_broken_documents_say_why(tmp_path, read):
    def broken(name, data):
        (tmp_path / name).write_bytes(data)
        return read(tmp_path / name)

    content = manual(tmp_path / "whole.pdf", 3).read_bytes()
    assert broken("empty.pdf", b"") == broken("text.pdf", b"hello") == "not a PDF, or corrupt"
    assert "corrupt" in broken("cut.pdf", content[:300])
    locked = write_pdf(tmp_path / "locked.pdf", lambda canvas: canvas.drawString(9, 9, "x"), encrypt="secret")
    assert "encrypted with a password" in read(locked)
    huge = write_pdf(tmp_path / "huge.pdf", lambda canvas: None, size=(20_000, 500))
    assert "page 1 is 20,000 x 500 points" in read(huge)
    few = IngestionSettings(max_pages=2)
    assert read(tmp_path / "whole.pdf", few) == "found 3 pages, ingestion.max_pages allows 2"


def test_a_pdf_without_pages_says_so_whatever_was_read_before(tmp_path, read):
    (tmp_path / "text.pdf").write_bytes(b"hello")
    with pypdfium2.PdfDocument.new() as pdf:
        pdf.save(tmp_path / "none.pdf")
    for name, reason in (("none", "it has no pages"), ("text", "not a PDF, or corrupt"), ("none", "it has no pages")):
        assert read(tmp_path / f"{name}.pdf") == reason


@pytest.mark.parametrize("encrypted", [False, True])
def test_a_pdf_that_states_too_few_pages_is_refused(tmp_path, read, encrypted):
    """PDFium would read as many pages as are stated."""
    encrypt = StandardEncryption("", ownerPassword="owner") if encrypted else None
    pages = [lambda canvas: canvas.drawString(9, 9, "x")] * 5
    whole = write_pdf(tmp_path / "whole.pdf", *pages, encrypt=encrypt).read_bytes()
    assert len(read(tmp_path / "whole.pdf").pages) == 5
    assert whole.count(b"/Count 5") == 1
    for stated, reason in ((0, None), (1, "/Count of its page tree is too low"), (4, "beyond the 4 that it states"),
                           (7, "page 6 is corrupt")):  # fmt: skip
        (tmp_path / f"{stated}.pdf").write_bytes(whole.replace(b"/Count 5", b"/Count %d" % stated))
        found = read(tmp_path / f"{stated}.pdf")
        if reason is None:
            assert len(found.pages) == 5, "PDFium counts the pages itself"
        else:
            assert reason in found


def test_pages_below_nodes_of_the_page_tree_are_counted(tmp_path, read):
    def nested(stated):
        nodes = [
            b"<</Type/Catalog/Pages 2 0 R>>",
            b"<</Type/Pages/Count %d/Kids[3 0 R 4 0 R]>>" % stated,
            b"<</Type/Pages/Parent 2 0 R/Count 2/Kids[5 0 R 6 0 R]>>",
            b"<</Type/Pages/Parent 2 0 R/Count 1/Kids[7 0 R]>>",
            *(b"<</Type/Page/Parent %d 0 R/MediaBox[0 0 99 99]>>" % parent for parent in (3, 3, 4)),
        ]
        body = b"".join(b"%d 0 obj\n%s\nendobj\n" % numbered for numbered in enumerate(nodes, 1))
        path = tmp_path / f"{stated}.pdf"
        path.write_bytes(b"%PDF-1.4\n" + body + b"trailer<</Size 8/Root 1 0 R>>\n%%EOF")
        return read(path)

    assert len(nested(3).pages) == 3
    assert "beyond the 2 that it states" in nested(2)


def test_the_same_file_gives_the_same_bytes(tmp_path, read):
    path = manual(tmp_path / "a.pdf", 6)
    copy = tmp_path / "b.pdf"
    copy.write_bytes(path.read_bytes())
    first, second = read(path, cache="one"), read(copy, cache="other")
    files = sorted(file.relative_to(first.folder) for file in first.folder.rglob("*") if file.is_file())
    assert len(files) == 2 + 6
    assert first.folder.name == second.folder.name
    assert all((first.folder / file).read_bytes() == (second.folder / file).read_bytes() for file in files)
    assert first.pages == second.pages


def test_grey_pages_take_a_channel_and_are_rgb_again(tmp_path, read):
    document = read(manual(tmp_path / "a.pdf", 3))
    files = [(document.folder / f"pages/00{page}.png").read_bytes() for page in (1, 3)]
    assert [Image.open(io.BytesIO(file)).mode for file in files] == ["L", "RGB"]
    assert document.picture(1).mode == document.picture(3).mode == "RGB"


def test_too_many_lines_are_a_drawing(tmp_path):
    def page(canvas):
        draw_text(canvas, "Map", 40)
        for index in range(300):
            canvas.line(50 + 1.6 * index, 100, 50 + 1.6 * index, 700)
            canvas.line(50, 100 + 2 * index, 540, 100 + 2 * index)

    path = write_pdf(tmp_path / "a.pdf", page)
    done = convert_document(path, DocumentCache(tmp_path / "cache", SETTINGS))
    assert not done.broken
    assert done.pages == 1
