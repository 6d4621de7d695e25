"""Steps of every size train, a file is converted whole, and the table has a line for each size."""

import pytest
from rich.console import Console

from benchmarks.growth import sizes
from benchmarks.growth.conversion import conversion_makers, write_interactions
from benchmarks.growth.ranking import ranking
from benchmarks.growth.steps import item_step, length_step, row_step
from benchmarks.growth.users import user_makers
from datamodules.recommender.store.prepare import prepare_store
from engine.data.samplers import TrainSampler


@pytest.mark.parametrize("attention", ["standard", "time_interval"])
def test_a_step_of_a_length_counts_all_positions(attention):
    assert length_step(attention, 20, batch_size=4, num_items=100)().amount == 80


@pytest.mark.parametrize("loss", ["sampled_softmax", "cross_entropy"])
def test_a_step_of_many_items_counts_all_positions(loss):
    assert item_step(loss, 1000, length=10, batch_size=4)().amount == 40


@pytest.mark.parametrize("item_optimizer", ["dense", "rowwise_adagrad", "lazy_adamw"])
def test_a_step_by_rows_counts_the_positions_of_all_steps(item_optimizer):
    work = row_step(item_optimizer, 1000, length=10, batch_size=4, batches=3, steps=4)
    assert work().amount == work().amount == 160


def test_the_amount_of_ranking_is_the_number_of_users():
    assert ranking(1000, users=3)().amount == 3


def test_a_store_of_each_turn_is_made_anew(tmp_path):
    with conversion_makers([20_000]) as makers:
        ((name, make),) = makers.items()
        work = make()
        assert name == "20,000 rows"
        assert [work().amount, work().amount] == [20_000, 20_000]
        folder = make.args[0].parent
        assert folder.exists()
    assert not folder.exists()  # whatever became of the variant
    store = prepare_store(write_interactions(tmp_path / "interactions", 20_000), cache=tmp_path / "store")
    assert 2_000 < store.num_interactions <= 20_000  # rare items are dropped


def test_interactions_have_the_given_users_and_items(tmp_path):
    store = prepare_store(write_interactions(tmp_path / "rows", 5_000, users=40, items=30), cache=tmp_path / "store")
    assert (len(store.user_ids), len(store.item_ids), store.num_interactions) == (40, 30, 5_000)


@pytest.mark.slow
def test_every_user_starts_and_a_few_train_and_are_evaluated():
    with user_makers((300, 600)) as makers:
        done = {name: make()().amount for name, make in makers.items()}
    # Eight batches of at most 128: two epochs of 300 users and two batches more, or one of 600 and three.
    trained = {"training, 300 users": 2 * 300 + 256, "training, 600 users": 600 + 384}
    kinds = ("start-up", "evaluation")
    assert done == trained | {f"{kind}, {users} users": users for kind in kinds for users in (300, 600)}


def test_the_order_of_an_epoch_is_drawn_once_an_epoch(monkeypatch):
    begun = []
    real = TrainSampler.__iter__
    monkeypatch.setattr(TrainSampler, "__iter__", lambda self: begun.append(1) or real(self))
    with user_makers((600,)) as makers:
        work = makers["training, 600 users"].func(*makers["training, 600 users"].args, batches=2)
        for _ in range(3):  # five batches are an epoch
            work()
    assert len(begun) == 2


@pytest.mark.slow
def test_the_table_has_a_line_for_each_size():
    measured = sizes.measure("conversion", 2, [1000, 2000])
    console = Console(width=140, record=True)
    console.print(sizes.table(measured))
    text = console.export_text()
    assert "1,000 rows" in text
    assert "2,000 rows" in text
    assert "rows per second" in text
    assert "tables and stores included" in text
    assert set(sizes._steps("items")) == {
        *(f"{name}, {items:,} items" for name in ("dense", "rowwise_adagrad", "lazy_adamw") for items in sizes.ITEMS),
        "rowwise_adagrad, 10,000,000 items",
        "all items' scores, 3,000 items",
        "all items' scores, 30,000 items",
    }
