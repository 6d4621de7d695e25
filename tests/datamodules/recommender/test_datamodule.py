"""Tests the DataModule: the time scale of a history, splits, and the size of evaluations."""

import json
import logging
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from datamodules.recommender.datamodule import InteractionSequences
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.export.runtime import ExportedRecommender
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from tests.support.fake_trainer import fake_trainer

USERS, ITEMS, EVENTS = 30, 12, 7


def time(user, event):
    """Gaps of 100 s, then 30 s, then 7 s: the smallest gap depends on where the history ends."""
    return 400 * user + [0, 100, 500, 900, 1500, 1530, 1537][event]


def history(user):
    items = [str((user + 5 * event) % ITEMS) for event in range(EVENTS)]
    return {"user": f"u{user}", "items": items, "times": [time(user, event) for event in range(EVENTS)]}


@pytest.fixture
def make_data(tmp_path):
    """A data module of a table of 30 users with 7 events."""
    rows = ["user,item,timestamp"]
    for user in range(USERS):
        user_history = history(user)
        rows += [
            f"{user_history['user']},{item},{time}"
            for item, time in zip(user_history["items"], user_history["times"], strict=True)
        ]
    (tmp_path / "events.csv").write_text("\n".join(rows) + "\n")

    def make(**settings):
        root = str(tmp_path / "events.csv")
        return InteractionSequences(root=root, min_item_interactions=1, max_length=5, batch_size=4, **settings)

    return make


def whole(dataset):
    return dataset[MicroBatchRequest(0, np.arange(len(dataset)))]


def test_the_unit_of_time_is_the_smallest_gap_of_the_history_wherever_it_is_read(make_data):
    data = make_data()
    data.setup("fit")
    data.setup("predict")
    train = data.train_set.rows[MicroBatchRequest(0, np.arange(USERS))]
    for batch, unit in (
        (train, 100),
        (whole(data.validation_set), 100),
        (whole(data.test_set), 30),
        (whole(data.predict_set), 7),
    ):
        assert batch.history.time_scale.tolist() == [unit] * USERS


@torch.no_grad()
def test_a_history_has_one_answer_from_the_table_from_a_file_and_from_a_loaded_export(make_data, tmp_path):
    latest = time(USERS - 1, EVENTS - 1)  # the default for users of the table
    lines = [{**history(user), "request_time": latest} for user in range(USERS)]
    (tmp_path / "people.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    table, file = make_data(), make_data(predict_histories=str(tmp_path / "people.jsonl"))
    for data in (table, file):
        data.setup("predict")
    assert (table.predict_input, file.predict_input) == (None, str(tmp_path / "people.jsonl"))
    ours, theirs = whole(table.predict_set), whole(file.predict_set)
    for actual, expected in zip([*ours.history[:5], *ours[1:]], [*theirs.history[:5], *theirs[1:]], strict=True):
        assert torch.equal(actual, expected)

    torch.manual_seed(0)
    encoder = SequenceEncoder(
        ITEMS, 5, ArchitectureSettings(hidden_size=8, attention="time_interval", time_span=64)
    ).eval()
    scores = encoder.scores(encoder(ours.history)[:, -1]).scatter(1, ours.seen, -torch.inf)
    loaded = ExportedRecommender(encoder, {"top_k": 3, "remove_seen": True}, table.catalog.item_ids, None)
    for line, row in zip(lines, scores, strict=True):
        best = row.topk(3)
        actual = loaded.recommend(line["items"], line["times"])
        assert [int(table.catalog.item_ids.index(item.item)) + 1 for item in actual] == best.indices.tolist()
        assert [item.score for item in actual] == pytest.approx(best.values.tolist(), rel=1e-5)


def test_a_small_evaluation_is_named_with_its_numbers_and_with_what_to_change(make_data, messages):
    data = make_data(split="temporal")
    data.setup("fit")
    validation, test = (line for line in messages if " has only " in line)
    number = len(data.validation_set)
    assert 0 < number < USERS
    error = f"(a metric's standard error is up to {0.5 / number**0.5:.2f})"
    assert validation.startswith(f"the validation has only {number} users {error}")
    assert "best.ckpt and EarlyStopping follow them. Try --data.init_args.split leave_one_out" in validation
    assert test.startswith("the test has only ")
    assert "(0.8) and test_from (0.9)" in test
    messages.clear()
    make_data().setup("fit")
    assert "has only 30 users" in messages[0] or "has only 30 users" in messages[1]
    assert any("data.init_args.min_user_interactions" in line for line in messages)


def test_a_temporal_split_takes_shares_or_seconds(make_data, messages):
    shares = make_data(split="temporal")
    shares.setup("fit")
    times = np.sort(shares.events.times)
    moments = [float(times[int(share * len(times))]) for share in (0.8, 0.9)]
    messages.clear()
    seconds = make_data(split="temporal", validation_from=moments[0], test_from=moments[1])
    seconds.setup("fit")
    for name in ("validation_set", "test_set"):
        assert whole(getattr(seconds, name)).users.tolist() == whole(getattr(shares, name)).users.tolist()
    assert any(f"lower validation_from ({moments[0]:.0f})" in line for line in messages)


def fit_trainer(*monitors):
    return fake_trainer(early_stopping_callbacks=[SimpleNamespace(monitor=monitor) for monitor in monitors])


def test_without_a_split_all_events_train_and_nothing_is_evaluated(make_data, messages, logged_warnings, caplog):
    caplog.set_level(logging.INFO, "lockstep")
    data = make_data(split="none")
    data.trainer = fit_trainer("train/loss")
    data.setup("fit")
    assert data.trainer.limit_val_batches == 0
    train = data.train_set.rows[MicroBatchRequest(0, np.arange(USERS))]
    assert train.history.time_scale.tolist() == [7] * USERS
    assert data.training_events.train_end.tolist() == data.events.offsets[1:].tolist()
    assert any("no validation and no best.ckpt" in line for line in messages)
    assert logged_warnings == []
    assert len(data.some_histories(8).users) == 8

    for stage in ("validate", "test"):
        with pytest.raises(ValueError, match=f"split is none: all events train, so there is none to {stage} with"):
            data.setup(stage)
    data.trainer = fit_trainer("train/loss", "val/ndcg@10")
    with pytest.raises(ValueError, match="EarlyStopping has no val/ndcg@10. Remove it with --trainer.callbacks null"):
        data.setup("fit")


@pytest.mark.parametrize("split", ["leave_one_out", "temporal"])
def test_an_export_is_compared_on_histories_of_the_validation(make_data, split):
    data = make_data(split=split)
    some = data.some_histories(5)
    assert set(some.users.tolist()) <= set(data.validation_set.users.tolist())
    assert len(some.users) == min(5, len(data.validation_set))
