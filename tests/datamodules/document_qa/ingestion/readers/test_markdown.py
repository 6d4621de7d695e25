"""Markdown becomes pages of texts, tables and figures, and no file outside the document is read."""

import time

import pytest

from datamodules.document_qa.ingestion.convert import convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.readers.markdown import blocks
from datamodules.document_qa.ingestion.settings import IngestionSettings
from tests.support.data_files.vision_language_files import png

COLORS = ((255, 0, 0), (0, 255, 0))


@pytest.fixture
def markdown(tmp_path):
    """Writes a file with an image beside it."""

    def write(text):
        folder = tmp_path / "text"
        (folder / "images").mkdir(parents=True, exist_ok=True)
        (folder / "images/red.png").write_bytes(png(COLORS[0], 40))
        path = folder / "manual.md"
        path.write_text(text, encoding="utf-8")
        return path

    return write


TEXT = """# Pump X-1

It *turns* **left**, see [the drawing](#drawing) and `valve_2`.
第10页。

## Parts
| No | Part | Mass |
|---:|:-----|------|
| 1 | Bolt \\| nut | 3.5 g |
| 2 | Shaft |

![The drawing](images/red.png "red")

- first
- second

```c
# no heading | no table
int x = 1;
```

Service
-------
Every year.

***
"""


def test_markdown_becomes_pages_of_texts_tables_and_figures(markdown, read):
    document = read(markdown(TEXT))
    assert [[(chunk.kind, chunk.text) for chunk in page.chunks] for page in document.pages] == [
        [("text", "Pump X-1"), ("text", "It turns left, see the drawing and valve_2. 第10页。")],
        [
            ("text", "Parts"),
            ("table", "No | Part | Mass\n1 | Bolt|nut | 3.5 g\n2 | Shaft | "),
            ("figure", ""),
            ("text", "The drawing"),
            ("text", "- first"),
            ("text", "- second"),
            ("text", "# no heading | no table\nint x = 1;"),
        ],
        [("text", "Service"), ("text", "Every year.")],
    ]
    figure = document.pages[1].chunks[2]
    assert document.figure(figure).getcolors() == [(1600, COLORS[0])]
    tops = [chunk.box[1] for chunk in document.pages[1].chunks]
    assert tops == sorted(tops)
    assert document.picture(2).width == round(8.27 * 36)


def test_markdown_is_divided_at_headings_and_at_the_largest_page(markdown, read):
    path = markdown("# One\n## A\ntext\n### deeper\nmore\n## B\ntext\n")
    assert [len(page.chunks) for page in read(path).pages] == [5, 2], "a title alone is no page"
    assert len(read(path, heading_level=0).pages) == 1
    assert len(read(path, heading_level=3).pages) == 3
    long = read(markdown("\n\n".join(["A paragraph of this file."] * 200)), max_page_pixels=50_000)
    assert 5 < len(long.pages) < 100
    assert sum(len(page.chunks) for page in long.pages) == 200
    sizes = [long.picture(page.number).size for page in long.pages]
    assert all(width * height <= 50_000 for width, height in sizes)
    table = "| a | b |\n|--|--|\n" + "| 1 | 2 |\n" * 2000
    huge = read(markdown(f"{'long ' * 50_000}\n\n![](images/red.png)\n\n{table}"), max_page_pixels=50_000)
    assert [chunk.kind for page in huge.pages for chunk in page.chunks] == ["text", "figure", "table"]
    assert huge.pages[0].chunks[0].text.count("long") == 50_000
    assert huge.pages[-1].chunks[-1].text.count("1 | 2") == 2000
    endless = read(markdown("x" * 1_100_000), max_page_pixels=50_000)  # Pillow measures at most a million characters
    assert [len(chunk.text) for page in endless.pages for chunk in page.chunks] == [1_100_000]


@pytest.mark.parametrize(
    "image",
    [
        "../secret.png",
        "images/../../secret.png",
        "%2e%2e/secret.png",
        "/etc/passwd",
        "link.png",
        "ftp://example.org/a.png",
        f"{'x' * 300}.png",
        "file:///etc/passwd",
    ],
)
def test_markdown_shows_images_of_its_folder_alone(tmp_path, markdown, read, image):
    (tmp_path / "secret.png").write_bytes(png(COLORS[1]))
    path = markdown(f"# Title\n\n![picture]({image})\n")
    (path.parent / "link.png").symlink_to(tmp_path / "secret.png")
    notes = convert_document(path, DocumentCache(tmp_path / "another cache", IngestionSettings(dpi=36))).notes
    assert len(notes) == 1
    assert "is not a file of the folder: its figure is skipped" in notes[0]
    assert [chunk.kind for chunk in read(path).pages[0].chunks] == ["text", "text"]


def test_a_file_that_is_no_image_is_refused(markdown, read):
    assert "expected an image" in read(markdown("# Title\n\n![picture](manual.md)\n"))


def test_a_table_of_missing_cells_is_refused_before_it_takes_gigabytes(markdown, read):
    header = "|a" * 2000 + "\n" + "|-" * 2000 + "\n"
    assert "found tables of 600,300 cells, a Markdown file may have 500,000" in read(markdown(header + "|1\n" * 300))
    assert len(read(markdown(header + "|1\n" * 3)).pages) == 1


def test_deeply_nested_lists_keep_their_words():
    text = "".join(f"{'  ' * depth}- word{depth}\n" for depth in range(30))
    assert [block.text for block in blocks(text)] == [f"- word{depth}" for depth in range(30)]


@pytest.mark.parametrize("image", ["https://x.org/a.png", "HTTP://x.org/a.png", "//x.org/a.png", "data:image/png,a"])
def test_a_remote_image_is_never_fetched_and_no_figure(tmp_path, markdown, read, image):
    path = markdown(f"# Title\n\n![badge]({image})\n\n![](images/red.png)\n")
    notes = convert_document(path, DocumentCache(tmp_path / "another cache", IngestionSettings(dpi=36))).notes
    assert notes == (f"image {image!r} is not a file of the folder: its figure is skipped",)
    document = read(path)
    assert [(chunk.kind, chunk.text) for chunk in document.pages[0].chunks] == [
        ("text", "Title"), ("text", "badge"), ("figure", ""),
    ]  # fmt: skip


def test_a_missing_image_is_no_figure_and_may_come_later(tmp_path, markdown, logged):
    path = markdown("# Title\n\n![plan](images/new.png)\n\n![](images/red.png)\n")
    settings, cache = IngestionSettings(dpi=36, workers=1), tmp_path / "cache"
    first = ingest([path], cache, settings).documents["manual.md"]
    assert any("image 'images/new.png' does not exist: its figure is skipped" in line for line in logged())
    assert [chunk.kind for chunk in first.pages[0].chunks] == ["text", "text", "figure"]
    (path.parent / "images/new.png").write_bytes(png(COLORS[1]))
    second = ingest([path], cache, settings).documents["manual.md"]
    assert [chunk.kind for chunk in second.pages[0].chunks] == ["text", "figure", "text", "figure"]


def test_text_that_is_not_utf_8_is_refused_and_a_byte_order_mark_is_skipped(markdown, read):
    path = markdown("x")
    path.write_bytes("Größe".encode("latin-1"))
    assert "is not UTF-8" in read(path)
    path.write_bytes(b"\xef\xbb\xbf# Title\r\ntext\r\n")
    assert [chunk.text for chunk in read(path).pages[0].chunks] == ["Title", "text"]
    path.write_bytes(b"\n \n")
    assert read(path) == "it has no pages"


BLOCKS = {
    "```pip install x```\n\n# Next": [("text", "pip install x"), ("heading", "Next")],
    "| a | b | c |\n|---|---|---|\n||5 V|spare|\n| 1 |": [("table", "a | b | c\n | 5 V | spare\n1 |  | ")],
    "Match `*.yaml` by `__init__` and `a[i](j)`.": [("text", "Match *.yaml by __init__ and a[i](j).")],
    "a *= b, x_ = 3, snake_case_name, 3 * 4 * 5": [("text", "a *= b, x_ = 3, snake_case_name, 3 * 4 * 5")],
    "![wiring](photo(1).png)": [("figure", "photo(1).png"), ("text", "wiring")],
    '![](<a b.png> "A title") after': [("figure", "a b.png"), ("text", "after")],
    "![plan][1]\n\n[1]: images/a%20b.png": [("figure", "images/a b.png"), ("text", "plan")],
    "| part | view |\n|--|--|\n| 1 | ![bolt](bolt.png) |": [
        ("figure", "bolt.png"), ("text", "bolt"), ("table", "part | view\n1 | "),
    ],
    "## Using C#\n## Closed ##": [("heading", "Using C#"), ("heading", "Closed")],
    "- b\n---\n- c": [("text", "- b"), ("text", "- c")],
    "1. one\n2. two\n   - **inner**\n\n   more": [
        ("text", "1. one"), ("text", "2. two"), ("text", "- inner"), ("text", "more"),
    ],
    "> quoted\n> twice": [("text", "quoted twice")],
    "~~old~~ &amp; a \\*star\\*, <b>bold</b>, <https://x.org>": [
        ("text", "old & a *star*, <b>bold</b>, https://x.org"),
    ],
    "!!! note\n    ![](a.png)\n\n    | a | b |\n    |--|--|\n    | 1 | 2 |": [
        ("figure", "a.png"), ("text", "!!! note"), ("table", "a | b\n1 | 2"),
    ],
    "A *plate* of 2*3*4 mm, un*believ*able": [("text", "A plate of 2*3*4 mm, unbelievable")],
    "Text ![]() here": [("text", "Text here")],
    "# Two ![logo](logo.png)": [("heading", "Two"), ("figure", "logo.png"), ("text", "logo")],
    "1. ![](a.png)\n\n# Chapter": [("figure", "a.png"), ("heading", "Chapter")],
    "- \n\nPara": [("text", "Para")],
    "First\n\n[1]: Smith\n[^2]: note\n\n# Next\n\n[used][3]\n\n[3]: x.html": [
        ("text", "First"), ("text", "[1]: Smith"), ("text", "[^2]: note"), ("heading", "Next"), ("text", "used"),
    ],
    "---\nWarning: hot\n\n# Chapter\n\n---": [("text", "Warning: hot"), ("heading", "Chapter")],
    "---\ntitle: A manual\ntags: [x]\n---\n# Start": [("code", "title: A manual\ntags: [x]"), ("heading", "Start")],
    "---\n\nAfter a break\n\n---": [("text", "After a break")],
    "第一章\n===\n**电压**：5 V": [("heading", "第一章"), ("text", "电压：5 V")],
}  # fmt: skip


@pytest.mark.parametrize("text", BLOCKS)
def test_markdown_is_divided_into_blocks_as_common_mark_does(text):
    assert [(block.kind, block.text) for block in blocks(text)] == BLOCKS[text]


@pytest.mark.parametrize(
    "text",
    [
        "[" * 50_000,
        "![" * 10_000,
        "# " + " " * 50_000 + "x",
        "*" * 50_000,
        "_a" * 25_000,
        "(" * 50_000,
        "|" + "-|" * 25_000 + "x",
        "|" + " " * 25_000 + "\n|" + " " * 25_000 + "-",
        "![a](" * 8_000,
        "> " * 25_000,
    ],
)
def test_long_texts_are_split_in_linear_time(text):
    begun = time.process_time()
    list(blocks(f"a | b\n{text}\n\n{text}"))
    assert time.process_time() - begun < 10  # linear: 0.1 to 3 s
