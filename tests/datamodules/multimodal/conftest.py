"""Fixture `tokenizer`: a byte-pair tokenizer trained on sentences about timelines."""

import pytest

from datamodules.multimodal.text.tokenizer import load_tokenizer

TEXTS = [
    f"The {name} is {trend} from {start}% to {end}% over {end} steps.\nThe minimum is {start}% at t={end}."
    for name in ("cpu", "gpu memory")
    for trend in ("rising", "falling", "stable")
    for start in range(0, 100, 9)
    for end in range(0, 100, 11)
]


@pytest.fixture(scope="session")
def tokenizer():
    return load_tokenizer(None, TEXTS)
