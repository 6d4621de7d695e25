"""Steps of every size train, a file is converted whole, and the table has a line a size."""

import pytest
from rich.console import Console

from benchmarks.growth import sizes
from benchmarks.growth.conversion import convert, write_interactions
from benchmarks.growth.steps import item_step, length_step
from benchmarks.growth.users import user_makers
from datamodules.recommender.store import prepare_store


@pytest.mark.parametrize("attention", ["standard", "time_interval"])
def test_steps_of_a_length(attention):
    assert length_step(attention, 20, batch_size=4, num_items=100)().amount == 80


@pytest.mark.parametrize("loss", ["sampled_softmax", "cross_entropy"])
def test_steps_of_many_items(loss):
    assert item_step(loss, 1000, length=10, batch_size=4)().amount == 40


def test_a_store_of_each_turn_is_made_anew(tmp_path):
    work = convert(20_000)
    assert [work().amount, work().amount] == [20_000, 20_000]
    store = prepare_store(write_interactions(tmp_path / "interactions.parquet", 20_000), cache=tmp_path / "store")
    assert 2_000 < store.num_interactions <= 20_000  # rare items are left out


def test_every_user_starts_and_a_few_train_and_are_evaluated():
    with user_makers((300, 600)) as makers:
        done = {name: make()().amount for name, make in makers.items()}
    kinds = ("start-up", "training", "evaluation")
    assert done == {f"{kind}, {users} users": users for kind in kinds for users in (300, 600)}


def test_a_line_a_size():
    found = sizes.figures("conversion", 2, [1000, 2000])
    console = Console(width=140, record=True)
    console.print(sizes.table(found))
    text = console.export_text()
    assert "1,000 rows" in text and "2,000 rows" in text and "rows a second" in text
    assert set(sizes._sides("items", [])) == {
        *(f"128 negatives, {items:,} items" for items in sizes.ITEMS),
        "all items' scores, 3,000 items", "all items' scores, 30,000 items",
    }  # fmt: skip
