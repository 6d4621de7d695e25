"""Fixture `tiles`: attention in one tile and in several."""

import pytest

from lightning_modules.recommender.networks.attention import tiles as attention_tiles


@pytest.fixture(params=[(1 << 19, 50), (40, 3), (1, 2)], ids=["one tile", "row by row", "smallest"])
def tiles(request, monkeypatch):
    """Attention of the small tensors of tests in one tile, and in several."""
    monkeypatch.setattr(attention_tiles, "CPU_TILE", request.param[0])
    monkeypatch.setattr(attention_tiles, "QUERIES", request.param[1])
