"""Tests folders of page images: the order of pages, and documents that are refused with a file's name."""

import io
import logging
import os

import pytest
from PIL import Image, features

from datamodules.document_qa.ingestion.convert import convert_document
from datamodules.document_qa.ingestion.document_cache import DocumentCache
from datamodules.document_qa.ingestion.ingest import ingest, open_ingested
from datamodules.document_qa.ingestion.readers import page_images
from datamodules.document_qa.ingestion.settings import IngestionSettings
from datamodules.document_qa.ingestion.sources import not_pages
from tests.support.data_files.vision_language_files import png

RED, GREEN, BLUE = (255, 0, 0), (0, 255, 0), (0, 0, 255)
SETTINGS = IngestionSettings(dpi=36, workers=1)


def tiff(*colors, mode="RGB", **options):
    pages = [Image.new("RGB", (40, 20), color).convert(mode) for color in colors]
    file = io.BytesIO()
    pages[0].save(file, "TIFF", save_all=True, append_images=pages[1:], **options)
    return file.getvalue()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "scans").mkdir()
    return tmp_path / "scans"


def read(folder, **settings):
    """The colors of the pages, or the reason why there are none."""
    cache = DocumentCache(folder.parent / "cache", IngestionSettings(dpi=36, **settings))
    done = convert_document(folder, cache)
    if done.broken:
        return done.broken
    document = cache.find_by_key(done.key, folder.name)
    return [document.picture(page).getpixel((5, 5)) for page in range(1, done.pages + 1)]


@pytest.mark.parametrize("compression", ["raw", "tiff_lzw", "tiff_adobe_deflate", "packbits"])
def test_a_tiff_is_all_of_its_pages_in_order(folder, compression):
    (folder / "1.png").write_bytes(png(RED))
    (folder / "2.TIF").write_bytes(tiff(GREEN, BLUE, compression=compression))
    (folder / "10.tiff").write_bytes(tiff(RED))
    assert read(folder) == [RED, GREEN, BLUE, RED]


@pytest.mark.parametrize("kind", ["GIF", "WEBP", "PNG", "MPO", "AVIF"])
def test_of_an_animation_the_first_frame_is_a_page_and_a_warning_names_it(folder, kind):
    if kind == "AVIF" and not features.check("avif"):
        pytest.skip("this Pillow reads no AVIF")
    frames, file = [Image.new("RGB", (40, 20), color) for color in (RED, GREEN, BLUE)], io.BytesIO()
    frames[0].save(file, kind, save_all=True, append_images=frames[1:])
    suffix = "jpg" if kind == "MPO" else kind.lower()
    (folder / f"1.{suffix}").write_bytes(file.getvalue())
    (folder / "2.png").write_bytes(png(BLUE))
    (folder / "3.tif").write_bytes(tiff(RED, GREEN))
    done = convert_document(folder, DocumentCache(folder.parent / "cache", SETTINGS))
    assert done.pages == 4, "one of the animation, one of the image, two of the scan"
    expected = f"1.{suffix} has 3 frames, of which the first is read; save the others as files of their own"
    assert [note for note in done.notes if "frames" in note] == [expected]


def avif(color, size=(40, 20)):
    file = io.BytesIO()
    Image.new("RGB", size, color).save(file, "AVIF", quality=100, subsampling="4:4:4")
    return file.getvalue()


@pytest.mark.skipif(not features.check("avif"), reason="this Pillow reads no AVIF")
def test_avif_is_a_page_within_the_same_bounds(folder, monkeypatch):
    (folder / "1.png").write_bytes(png(RED))
    (folder / "2.avif").write_bytes(avif(GREEN))
    (folder / "10.AVIF").write_bytes(avif(BLUE))
    for actual, expected in zip(read(folder), (RED, GREEN, BLUE), strict=True):
        assert actual == pytest.approx(expected, abs=4), "a lossy format"
    (folder / "10.AVIF").write_bytes(avif(BLUE)[:-40])
    assert "10.AVIF: found" in read(folder)
    assert "cannot be decoded" in read(folder)
    monkeypatch.setattr(page_images, "MAX_PIXELS", 30 * 15)
    (folder / "1.png").unlink()
    assert "2.avif: found an image of 40 x 20 = 800 pixels, expected at most 450" in read(folder)


def test_black_and_white_scans_are_read_and_what_has_32_bits_is_refused(folder):
    (folder / "1.tif").write_bytes(tiff((255, 255, 255), mode="1", compression="group4"))
    assert read(folder) == [(255, 255, 255)]
    (folder / "1.tif").write_bytes(tiff(RED, mode="F"))
    assert "1.tif, page 1: found" in read(folder)
    assert "its pixels have 32 bits" in read(folder)


def test_the_orientation_of_a_tiff_is_applied_once(folder):
    image = Image.new("RGB", (40, 20), BLUE)
    image.paste(RED, (0, 0, 10, 20))
    file = io.BytesIO()
    image.save(file, "TIFF", tiffinfo={0x0112: 6})  # its left edge is the top
    (folder / "1.tif").write_bytes(file.getvalue())
    cache = DocumentCache(folder.parent / "cache", SETTINGS)
    picture = cache.find_by_key(convert_document(folder, cache).key, "scans").picture(1)
    assert picture.size == (20, 40)
    assert picture.getpixel((10, 5)) == RED
    assert picture.getpixel((10, 30)) == BLUE


@pytest.mark.parametrize("end", [0.3, 0.6, 0.9])
def test_a_cut_tiff_is_refused_and_no_page_is_left(folder, end):
    data = tiff(RED, GREEN, BLUE, compression="tiff_lzw")
    (folder / "1.tif").write_bytes(data[: int(end * len(data))])
    assert "1.tif" in read(folder)


def test_the_pages_of_a_tiff_are_bounded(folder, monkeypatch):
    (folder / "1.tif").write_bytes(tiff(*[RED] * 9))
    assert "found 4 pages or more, ingestion.max_pages allows 3" in read(folder, max_pages=3)
    monkeypatch.setattr("datamodules.document_qa.ingestion.readers.page_images.MAX_PIXELS", 30)
    assert "1.tif, page 1: found an image of 40 x 20 = 800 pixels, expected at most 30" in read(folder)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("2.heic", b"\0\0\0\x18ftypheic"),
        ("2.HEIC", b""),
        ("2.jp2", b"jP  "),
        ("2.svg", b"<svg/>"),
        ("2.psd", b"8BPS"),
        ("2.bak", b"x"),
        ("2", b"x"),
        ("2.png", b"text"),
        ("2.pdf", b"%PDF-1.4"),
    ],
)
def test_a_page_that_cannot_be_read_is_named_and_no_page_moves_up(folder, name, data):
    for number in (1, 3):
        (folder / f"{number}.png").write_bytes(png(RED))
    (folder / name).write_bytes(data)
    assert read(folder).startswith(f"{name}: found ")


@pytest.mark.parametrize("kind", ["dangling", "folder", "pipe"])
def test_an_image_name_that_is_no_file_is_reported(folder, kind):
    (folder / "1.png").write_bytes(png(RED))
    page = folder / "2.png"
    page.symlink_to("gone") if kind == "dangling" else page.mkdir() if kind == "folder" else os.mkfifo(page)
    assert read(folder).startswith("2.png ")


def test_other_files_are_named_and_pages_stay(folder, caplog):
    for name in ("page 1.png", "page 2.png"):
        (folder / name).write_bytes(png(RED))
    for name in ("page 1.txt", "notes.md", "Thumbs.db", ".hidden", "original.pdf"):
        (folder / name).touch()
    (folder / "old").mkdir()
    assert not_pages(folder) == ["Thumbs.db", "notes.md", "old", "original.pdf", "page 1.txt"]
    with caplog.at_level(logging.WARNING):
        documents = ingest([folder], folder.parent / "cache", SETTINGS).documents
    assert len(documents["scans"].pages) == 2
    assert "scans, 2 of 2 pages have no text" in caplog.text, "not among those that are only counted"
    assert "scans, 'Thumbs.db' is not a page image and is skipped" in caplog.text
    assert "3 more warnings" in caplog.text


def test_a_page_that_is_added_later_or_repaired_is_noticed(folder):
    cache = folder.parent / "cache"
    (folder / "1.png").write_bytes(png(RED))
    ingest([folder], cache, SETTINGS)
    (folder / "2.heic").write_bytes(b"x")
    with pytest.raises(ValueError, match="not ingested into"):
        open_ingested([folder], cache, SETTINGS)
    with pytest.raises(ValueError, match="scans: 2.heic: found 1 bytes"):
        ingest([folder], cache, SETTINGS)
    skip = IngestionSettings(dpi=36, workers=1, on_broken="skip")
    assert "2.heic: found 1 bytes" in ingest([folder], cache, skip).broken["scans"]
    assert "2.heic: found 1 bytes" in open_ingested([folder], cache, skip).broken["scans"]
    (folder / "2.heic").unlink()
    assert len(ingest([folder], cache, SETTINGS).documents["scans"].pages) == 1
