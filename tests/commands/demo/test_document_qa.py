"""Tests the page and the chat of a reader of documents: equal to `predict`, with the evidence on its page."""

import base64
import io
import logging
import sys
import zlib

import numpy as np
import pytest
import yaml
from PIL import Image
from rich.console import Console

from commands.answers.answer_blocks import Note
from commands.answers.answer_service import UploadedFile, UserInputError, UserQuestion
from commands.answers.families.uploaded_documents import UploadedDocuments
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files.document_folder import questions_about, write_folder, write_pdf, write_questions
from tests.support.demo import demo_server, page_driver
from tests.support.families.tiny_documents import write_config
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run and documents that it has not seen, and its answers."""
    folder = tmp_path_factory.mktemp("documents")
    train = write_folder(folder / "own", range(4))
    data = {
        "class_path": "DocumentQuestions",
        "init_args": {
            "train": train,
            "split": {"validation": 0.25, "test": 0.25},
            "root": str(folder / "root"),
            "ingestion": {"dpi": 36, "workers": 1},
            "batch_size": 4,
            "evaluation_batch_size": 4,
        },
    }
    overlay = folder / "overlay.yaml"
    overlay.write_text(yaml.safe_dump({"data": data}))
    write_pdf(folder / "new/a.pdf", 7)
    write_pdf(folder / "new/b.pdf", 9, pages=3)
    with demo_server.trained(folder, *write_config(folder), "--config", str(overlay)) as demo:
        yield folder, demo


def given(folder, *names):
    return {"documents": [UploadedFile(name, (folder / "new" / name).read_bytes()) for name in names]}


def test_the_answer_is_that_of_predict(run, monkeypatch):
    from commands.cli.main import main

    folder, demo = run
    monkeypatch.chdir(folder)
    records = [*questions_about("a.pdf", 7), *questions_about("b.pdf", 9, 4)]
    write_questions(folder / "questions.jsonl", records)
    main(
        [
            "predict",
            "--run_name",
            "a",
            "--data.init_args.predict_questions",
            "questions.jsonl",
            "--data.init_args.predict_documents",
            "new",
        ]
    )
    lines = read_jsonl(folder / "runs/a/predictions.jsonl")
    assert len(lines) == 8
    for line, record in zip(lines, records, strict=True):
        texts = {"question": record["question"], "options": "\n".join(record.get("options", []))}
        blocks = demo_server.answered(demo, UserQuestion(texts, given(folder, line["document"])))
        assert blocks["answer"].text == line.get("text", line["answer"])
        (largest, *_) = blocks["confidence"].bars
        assert largest.share == pytest.approx(line["confidence"], abs=1e-3)
        (page,) = blocks["evidence"].pictures
        assert page.caption == f"page {line['page']}, {line['evidence']['kind']}"
        others = [page for page in line["ranked"] if page != line["page"]]
        displayed = blocks["pages"].pictures if "pages" in blocks else []
        assert [picture.caption.split(",")[0] for picture in displayed] == [f"page {page}" for page in others]
    picture = Image.open(io.BytesIO(base64.b64decode(page.url.partition("base64,")[2]))).convert("RGB")
    left, top, right, bottom = line["evidence"]["box"]
    edges = (
        (left, (top + bottom) / 2),
        (right, (top + bottom) / 2),
        ((left + right) / 2, top),
        ((left + right) / 2, bottom),
    )
    for x, y in edges:  # a red line is within a few pixels of each edge of the chunk
        at = (round(x * picture.width), round(y * picture.height))
        near = np.asarray(picture.crop((at[0] - 7, at[1] - 7, at[0] + 8, at[1] + 8)))
        assert ((near[..., 0] > 150) & (near[..., 1] < 90)).any()


def test_several_documents_are_asked_each(run, monkeypatch):
    folder, demo = run
    question = UserQuestion({"question": "what is pump 7 ?"}, given(folder, "a.pdf", "b.pdf"))
    blocks = demo_server.answered(demo, question)
    alone = [demo_server.answered(demo, question._replace(files=given(folder, name))) for name in ("a.pdf", "b.pdf")]
    assert [row[:2] for row in blocks["documents"].rows] == [
        [name, found["answer"].text] for name, found in zip(("a.pdf", "b.pdf"), alone, strict=True)
    ]
    best = max(blocks["documents"].rows, key=lambda row: row[2])
    assert blocks["answer"].text == best[1]
    assert blocks["answer"].title == f"From {best[0]}"
    monkeypatch.setattr("commands.answers.families.document_qa.is_abstention", lambda text: text == best[1])
    blocks = demo_server.answered(demo, question._replace(files=given(folder, best[0])))
    assert blocks["answer"].title == "Not in these documents"
    assert "evidence" not in blocks


def test_wrong_files_are_refused(run):
    folder, demo = run
    page = demo_server.client(demo)
    assert "pdf" in demo_server.uploaded(page, "documents", "a.md", b"![](/etc/passwd)")[0]["error"]
    last = demo_server.uploaded(page, "documents", "a.pdf", b"%PDF-1.7 torn")[-1]
    assert last["error"].startswith("a.pdf: ")
    assert "/tmp" not in last["error"]
    long = write_pdf(folder / "long.pdf", 1, pages=4).read_bytes()
    for settings, seconds, message in (
        (IngestionSettings(max_pages=3), 60, "4 pages"),
        (IngestionSettings(), -1, "takes longer"),
    ):
        uploads = UploadedDocuments(settings, seconds)
        with pytest.raises(UserInputError, match=f"long.pdf: .*{message}"):
            assert all(isinstance(note, Note) for note in uploads.read(UploadedFile("long.pdf", long), "pages"))
    with pytest.raises(UserInputError, match="no file is given"):
        demo_server.answered(demo, UserQuestion({"question": "?"}))


def test_the_suffix_of_a_file_without_a_name_counts(tmp_path):
    uploads = UploadedDocuments(IngestionSettings(dpi=36))
    for name in (".pdf", ".PDF"):
        file = UploadedFile(name, write_pdf(tmp_path / "a.pdf", 1).read_bytes())
        assert len(read_all(uploads, file).pages) == 2
    with pytest.raises(UserInputError, match=r"^pdf: expected a file that ends in \.pdf, "):
        read_all(uploads, UploadedFile("pdf", b"%PDF"))


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits what a process allocates")
def test_a_document_cannot_take_the_memory_of_the_server(caplog, monkeypatch):
    """A content stream of 128 kB becomes 128 MB, of which the parser makes copies."""
    monkeypatch.setattr(logging.getLogger("lockstep"), "propagate", True)
    uploads = UploadedDocuments(IngestionSettings(dpi=36), memory=64 << 20)
    with pytest.raises(UserInputError) as refused:
        read_all(uploads, UploadedFile("small.pdf", inflating_pdf(128 << 20)))
    assert str(refused.value) == "small.pdf: it is corrupt, or reading it needs more than 0.0625 GiB of memory"
    assert "small.pdf could not be read: its worker process " in caplog.text, "the log has the reason"


def read_all(uploads, file):
    """Return the document, without the notes of progress."""
    steps = uploads.read(file, "key")
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def inflating_pdf(size):
    """Return a PDF with one page, whose content is `size` spaces."""
    content = zlib.compress(bytes([32]) * size, 1)
    objects = [
        b"<</Type/Catalog/Pages 2 0 R>>",
        b"<</Type/Pages/Kids[3 0 R]/Count 1>>",
        b"<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 200]/Contents 4 0 R>>",
        b"<</Filter/FlateDecode/Length %d>>stream\n%s\nendstream" % (len(content), content),
    ]
    text, offsets = b"%PDF-1.4\n", []
    for number, found in enumerate(objects, 1):
        offsets.append(len(text))
        text += b"%d 0 obj%sendobj\n" % (number, found)
    table = b"".join(b"%010d 00000 n \n" % offset for offset in offsets)
    end = b"trailer<</Size 5/Root 1 0 R>>\nstartxref\n%d\n%%%%EOF" % len(text)
    return text + b"xref\n0 5\n0000000000 65535 f \n" + table + end


def test_the_chat_reads_documents(run):
    from commands.chat.main import chat

    folder, demo = run
    output = io.StringIO()
    lines = f"/documents {folder}/new/a.pdf; {folder}/new/b.pdf\n/options steel; brass\nwhat is pump 7 ?\n"
    chat(demo, folder, io.StringIO(lines), Console(file=output, width=200))
    text = output.getvalue()
    assert "2 pages" in text
    assert "From " in text
    assert "Each document" in text
    assert "document 1 of" not in text
    assert "steel" in text.split("From ")[1]
    assert "brass" in text.split("Confidence")[1]


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)


@pytest.mark.slow
@browser.with_browser
def test_a_visitor_asks_documents(run, tmp_path):
    folder, demo = run
    with demo_server.served(demo) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.drop(page, "documents", "torn.pdf", b"%PDF-1.7 torn")
        page_driver.wait(page, "document.querySelector('.state.error')?.innerText.includes('torn.pdf')", 60)
        page_driver.drop(page, "documents", "b.pdf", (folder / "new/b.pdf").read_bytes())
        page_driver.wait(page, "document.querySelector('.files li')?.innerText.includes('3 pages')", 60)
        page.run("document.querySelector('textarea').value = 'what is pump 9 ?'")
        page_driver.check_two_visitors(page)
        expected = demo_server.answered(demo, UserQuestion({"question": "what is pump 9 ?"}, given(folder, "b.pdf")))
        assert page.run("document.querySelector('[data-key=answer] p').innerText") == expected["answer"].text
        assert page.run("document.querySelector('[data-key=evidence] img').naturalHeight") > 80
        page_driver.check_quality(page, address)
        page.run("document.querySelector('.example').click()")
        page_driver.ask(page)
        assert page.run("document.querySelectorAll('[data-key=answer]').length") == 1
