"""The layouts hold the same samples and have the same loss; the benchmark measures all of them."""

import pytest
from rich.console import Console

from benchmarks.vision_language import packing
from benchmarks.vision_language.mixture import CHAT_KINDS, MixtureSamples
from benchmarks.vision_language.models import TINY, amounts_of_turns
from datamodules.multimodal.batch import ImageLayout


def test_the_loss_is_the_same_in_every_layout():
    found = [packing.loss_of(TINY, layout, batches=2) for layout in packing.LAYOUTS.values()]
    assert all(loss == pytest.approx(found[0], rel=1e-5) for loss in found)
    assert found[0][1] > 100


def test_tokens_are_the_same_in_every_layout_and_padding_is_not():
    found = [amounts_of_turns(TINY, layout, turns=2, steps=3, warm_up=1) for layout in packing.LAYOUTS.values()]
    assert len({tuple(turn["tokens"] for turn in layout) for layout in found}) == 1
    padded, grouped, packed = (sum(turn["tokens"] / turn["positions"] for turn in layout) / 2 for layout in found)
    assert padded < grouped <= 1
    assert padded < packed <= 1


def test_the_mixture_is_as_described():
    assert sum(sort.share for sort in CHAT_KINDS) == 1
    source = MixtureSamples(ImageLayout(16, 16))
    items = [source.item(0, index) for index in range(400)]
    images = [len(item.counts) for item in items]
    assert images.count(0) / 400 == pytest.approx(0.30, abs=0.06)
    assert sum(number > 1 for number in images) / 400 == pytest.approx(0.15, abs=0.06)
    assert all(item.messages[0]["content"].count("<image>") == len(item.counts) for item in items)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_variants")
def test_all_layouts_are_measured_with_equal_loss():
    measured = packing.measure(repeats=1, sizes=TINY, steps=2)
    assert [variant["name"] for variant in measured["sides"]] == list(packing.LAYOUTS)
    assert all(min(variant["tokens_per_second"]) > 0 for variant in measured["sides"])
    console = Console(width=140, record=True)
    console.print(packing.table(measured))
    text = console.export_text()
    assert "equal loss to 1e-5, of as many terms: met" in text
    assert "packed at least 1.8 times as fast" in text
    assert len(measured["goals"]) == 2
