"""Tests the ranks that an evaluation collects for each user, and when it writes them."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from lightning_modules.recommender.item_ranks.rank_collector import distinct_items
from lightning_modules.recommender.item_ranks.rank_file import read_ranks
from lightning_modules.recommender.item_ranks.rank_metrics import gains, rank_classes


@settings(max_examples=40)
@given(st.lists(st.lists(st.integers(0, 6), min_size=5, max_size=5), min_size=1, max_size=6), st.integers(0, 6))
def test_distinct_items_are_those_of_a_set(seen, target):
    actual = distinct_items(torch.tensor(seen), torch.full((len(seen),), target))
    assert actual.tolist() == [len(set(items) - {0, target}) for items in seen]


def metrics_of(run, stage):
    """The latest line of metrics.jsonl with metrics of the stage."""
    return [record for record in run.records if f"{stage}/ndcg@10" in record][-1]


def test_test_keeps_the_rank_of_each_user_and_fit_does_not(done, lockstep, messages):
    assert not list(done.folder.glob("ranks-*")), "validations of a training keep none"
    name = done.folder.name
    lockstep("test", "--data.init_args.evaluation_batch_size", "48", name=name)
    path = done.folder / "ranks-test.npz"
    assert [line for line in messages if line.startswith("wrote the ranks of 200 users to ")]
    ranks, first = read_ranks(path), path.read_bytes()
    table = gains((1, 5, 10, 20))
    means = dict(zip(table.names, table.values[rank_classes(ranks.rank, table)].mean(0).tolist(), strict=True))
    logged = metrics_of(done, "test")
    assert means == pytest.approx({name: logged[f"test/{name}"] for name in means}, abs=1e-6)
    assert ranks.header.step in (13, 26)
    assert ranks.header.protocol == ""
    assert len(set(ranks.users)) == 200
    assert all(user.startswith("shopper-") for user in ranks.users)
    # The tiny marketplace has 60 items, of which the history's do not compete.
    assert ranks.candidates.min() < 60
    assert np.all(ranks.candidates > 60 - ranks.history - 1)
    lockstep("test", "--data.init_args.evaluation_batch_size", "7", name=name)
    assert path.read_bytes() == first, "batches change nothing"
    path.unlink()
    lockstep("test", "--model.init_args.save_ranks", "false", name=name)
    lockstep("test", "--trainer.fast_dev_run", "true", name=name)
    assert not path.exists()


@pytest.mark.slow
def test_the_file_has_the_held_out_events_of_the_data(done, lockstep, messages, monkeypatch):
    from datamodules.recommender.datamodule import InteractionSequences

    modules = []
    setup = InteractionSequences.setup
    monkeypatch.setattr(
        InteractionSequences, "setup", lambda self, stage: (modules.append(self), setup(self, stage))[1]
    )
    name = done.folder.name
    for command, stage, back in (("validate", "val", 2), ("test", "test", 1)):
        lockstep(command, "--model.init_args.remove_seen", "false", name=name)
        ranks, events = read_ranks(done.folder / f"ranks-{stage}.npz"), modules[-1].events
        assert ranks.header.stage == stage
        assert set(ranks.candidates.tolist()) == {events.num_items}
        row = {user: number for number, user in enumerate(events.user_ids)}
        begins, ends = events.offsets[:-1], events.offsets[1:] - 2
        training = [item for begin, end in zip(begins, ends, strict=True) for item in events.items[begin:end].tolist()]
        for user, target, history, popularity in zip(
            ranks.users, ranks.targets, ranks.history, ranks.popularity, strict=True
        ):
            begin, end = events.offsets[row[user]], events.offsets[row[user] + 1]
            item = events.items[end - back]
            assert target == events.item_ids[item - 1]
            assert history == end - begin - back
            assert popularity == training.count(item)


def test_a_full_disk_costs_the_file_alone(done, lockstep, messages, monkeypatch):
    def refuse(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lightning_modules.recommender.item_ranks.rank_collector.write_atomically", refuse)
    lockstep("test", name=done.folder.name)
    assert [line for line in messages if "ranks-test.npz cannot be written: [Errno 28] No space left" in line]
    assert metrics_of(done, "test")
    assert not (done.folder / "ranks-test.npz").exists()
