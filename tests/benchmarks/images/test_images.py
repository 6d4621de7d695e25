"""Runs the benchmark at small sizes: its rows, and that all decoders return nearly the same picture."""

import numpy as np

from benchmarks.images import decoders, loaders
from benchmarks.images.jpeg_images import SIZES, jpeg
from tests.benchmarks.conftest import printed


def test_decoders_agree_within_three_grey_levels():
    """Reduced decoding averages over blocks, so that a picture differs by its noise alone."""
    data = jpeg(1000, 900)
    pictures = {name: decode(data).astype(float) for name, decode in decoders.decoders().items()}
    assert len(pictures) >= 2
    assert all(picture.shape == (3, 224, 224) for picture in pictures.values())
    full_size = pictures["Pillow, full size"]
    assert {name for name, picture in pictures.items() if np.abs(picture - full_size).mean() > 3} == set()


def test_each_decoder_is_measured_in_a_turn(monkeypatch):
    monkeypatch.setattr(decoders, "SIZES", {"32 x 24": (32, 24)})
    measured = decoders.measure(1, seconds=0)
    assert list(SIZES)[0] == "224 x 224"
    assert min(min(turns) for turns in measured["32 x 24"].values()) > 0
    assert "Pillow, reduced (Lockstep)" in printed(decoders.table(measured))


def test_each_loader_is_measured_in_a_turn(monkeypatch):
    monkeypatch.setattr(loaders, "_SIZE", (40, 30))
    monkeypatch.setattr(loaders, "_VIEW", 16)
    monkeypatch.setattr(loaders, "_WORKERS", (1,))
    measured = loaders.measure(1, files=64)
    assert all(list(columns) == ["0", "0/core", "1", "1/core"] for columns in measured.values())
    assert min(rate for columns in measured.values() for turns in columns.values() for rate in turns) > 0
    text = printed(loaders.table(measured))
    assert "1 workers, per CPU s" in " ".join(text.split())
    assert "image classifier" in text
