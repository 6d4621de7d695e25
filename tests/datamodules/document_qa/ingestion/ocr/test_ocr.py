"""Tests OCR of pages without text, and the message that names the option."""

import logging
import os
import shutil
import stat
from pathlib import Path

import pytest
from PIL import Image, ImageDraw, ImageFont

from datamodules.document_qa.ingestion.ingest import ingest
from datamodules.document_qa.ingestion.ocr import tesseract
from datamodules.document_qa.ingestion.ocr.recognizer import OcrLine, RecognitionError
from datamodules.document_qa.ingestion.ocr.recognizer_choice import load_recognizer, require_recognizer
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.retrieval.bm25 import BM25Retriever
from datamodules.document_qa.types.question import Question

PAGES = ("The relay closes at 24 V.", "The mass of part 7 is 130 g.")

TABLE = """\
level\tpage_num\tblock_num\tpar_num\tline_num\tword_num\tleft\ttop\twidth\theight\tconf\ttext
1\t1\t0\t0\t0\t0\t0\t0\t400\t100\t-1\t
5\t1\t1\t1\t1\t1\t20\t30\t40\t20\t96\tThe
5\t1\t1\t1\t1\t2\t70\t28\t60\t24\t95\t"relay"
5\t1\t1\t1\t2\t1\t20\t60\t20\t20\t96\t额
5\t1\t1\t1\t2\t2\t42\t60\t20\t20\t96\t定
5\t1\t1\t1\t2\t3\t70\t60\t20\t20\t96\t24V
5\t1\t1\t1\t3\t1\t70\t60\t20\t20\t96\t{space}
"""


def scan(text, size=(440, 440)):
    """A page that is an image only, turned by a degree."""
    picture = Image.new("RGB", size, "white")
    ImageDraw.Draw(picture).text((20, 25), text, font=ImageFont.load_default(24), fill="black")
    return picture.rotate(1, fillcolor="white", resample=Image.Resampling.BICUBIC)


@pytest.fixture
def scans(tmp_path):
    (tmp_path / "scans").mkdir()
    for number, text in enumerate(PAGES, 1):
        scan(text).save(tmp_path / f"scans/{number}.png")
    return tmp_path / "scans"


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Install a script as tesseract."""

    def install(script):
        (tmp_path / "bin").mkdir(exist_ok=True)
        path = tmp_path / "bin/tesseract"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
        load_recognizer.cache_clear()

    yield install
    load_recognizer.cache_clear()


def test_text_of_scans_is_recognised_once_and_found(scans, tmp_path, caplog):
    settings = IngestionSettings(workers=1, ocr="rapidocr")
    document = ingest([scans], tmp_path / "cache", settings).documents["scans"]
    texts = ["".join(chunk.text for chunk in page.chunks).replace(" ", "") for page in document.pages]
    assert texts == [text.replace(" ", "") for text in PAGES]
    assert [[chunk.kind for chunk in page.chunks] for page in document.pages] == [["figure", "text"]] * 2
    left, top, right, bottom = document.pages[0].chunks[1].box
    assert 0 < left < 0.1
    assert 0 < top < 0.1
    assert 0.6 < right < 0.95
    assert 0.1 < bottom < 0.2
    assert BM25Retriever().rank(document, Question("q", "What is the mass of part 7?", "scans"))[0] == 2
    with caplog.at_level(logging.INFO, "lockstep"):
        ingest([scans], tmp_path / "cache", settings)
    assert "nothing to do" in caplog.text


def test_chinese_text_is_recognised_and_found(tmp_path):
    """The picture was drawn by Pillow with the font WenQuanYi Zen Hei (Debian's fonts-wqy-zenhei) at 28 pixels."""
    settings = IngestionSettings(workers=1, ocr="rapidocr")
    scans = tmp_path / "scans"
    scans.mkdir()
    scan("The relay closes.").save(scans / "1.png")
    shutil.copy(Path(__file__).with_name("chinese.png"), scans / "2.png")
    document = ingest([scans], tmp_path / "cache", settings).documents["scans"]
    texts = [chunk.text.replace(" ", "") for chunk in document.pages[1].chunks if chunk.kind == "text"]
    assert texts == ["更换过滤器", "额定电压24V"]
    assert BM25Retriever().rank(document, Question("q", "额定电压是多少?", "scans"))[0] == 2


def test_pages_without_text_name_the_option(scans, tmp_path, caplog):
    plain = ingest([scans], tmp_path / "cache", IngestionSettings(workers=1)).documents["scans"]
    assert [[chunk.kind for chunk in page.chunks] for page in plain.pages] == [["figure"]] * 2
    assert "2 of 2 pages have no text, so no words of them are found or read" in caplog.text
    assert "set data.init_args.ingestion.ocr to rapidocr or tesseract" in caplog.text


def test_a_blank_scan_is_reported(tmp_path, caplog):
    Image.new("RGB", (60, 40), "white").save(tmp_path / "blank.png")
    ingested = ingest([tmp_path / "blank.png"], tmp_path / "cache", IngestionSettings(workers=1, ocr="rapidocr"))
    assert len(ingested.documents["blank.png"].pages[0].chunks) == 1
    assert "rapidocr found no text on 1 of 1 pages" in caplog.text


def test_lines_of_tesseract_are_joined_from_its_words(program, tmp_path):
    (tmp_path / "table").write_text(TABLE.format(space=" "))
    program(
        f'[ "$1" = --list-langs ] && echo "List: eng chi_sim osd" && exit; cat > {tmp_path}/page; '
        f'echo "$@" > {tmp_path}/arguments; cat {tmp_path}/table'
    )
    found = load_recognizer("tesseract").lines(scan("x"))
    assert found == [OcrLine((20, 28, 130, 52), 'The "relay"'), OcrLine((20, 60, 90, 80), "额定 24V")]
    assert (tmp_path / "arguments").read_text() == "stdin stdout -l eng+chi_sim --psm 3 tsv\n"
    with Image.open(tmp_path / "page") as given:
        assert given.size == (440, 440)


@pytest.mark.parametrize(
    ("script", "message"),
    [("echo broken >&2; exit 3", "tesseract failed: broken"), ("exec sleep 60", "tesseract has taken more than 0.5 s")],
)
def test_a_program_that_fails_or_hangs_costs_the_text_of_a_page(program, scans, tmp_path, monkeypatch, script, message):
    program(f'[ "$1" = --list-langs ] && echo eng && exit; {script}')
    found = load_recognizer("tesseract")
    monkeypatch.setattr(tesseract, "_SECONDS", 0.5)
    with pytest.raises(RecognitionError, match=message):
        found.lines(scan("x"))


def test_what_is_not_installed_is_reported_before_documents_are_read(program, scans, tmp_path, monkeypatch):
    program("echo deu")
    with pytest.raises(ValueError, match="has none of the languages eng, chi_sim"):
        ingest([scans], tmp_path / "cache", IngestionSettings(ocr="tesseract"))
    program("echo Error opening data file >&2; exit 1")
    with pytest.raises(ValueError, match="--list-langs does not run: tesseract failed: Error opening data file; inst"):
        ingest([scans], tmp_path / "cache", IngestionSettings(ocr="tesseract"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ValueError, match="no such program here: install it .*apt-get install tesseract-ocr"):
        ingest([scans], tmp_path / "cache", IngestionSettings(ocr="tesseract"))
    monkeypatch.setattr("engine.system.extras.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="ingestion.ocr rapidocr needs .*rapidocr-onnxruntime.*, not installed"):
        require_recognizer("rapidocr")
    assert not (tmp_path / "cache").exists()


def test_other_programs_are_refused():
    with pytest.raises(ValueError, match="ocr must be one of none, rapidocr, tesseract; got 'abbyy'"):
        IngestionSettings(ocr="abbyy").check()


def test_documents_that_were_ingested_without_it_keep_their_keys():
    assert "ocr" not in IngestionSettings().identity
    assert IngestionSettings(ocr="rapidocr").identity["ocr"] == "rapidocr"
