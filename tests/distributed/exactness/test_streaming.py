"""Training on a stream without a length: epochs, validation, checkpoints and resume."""

import re

import pytest

from engine.distributed.errors import CollectiveError
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.outputs.metric_series import assert_same_series
from tests.support.outputs.sample_log import differences, sample_log
from tests.tiers import slow

# 50 records in batches of 8: 7 steps an epoch, the last with 2 records.
STREAM = ["--data.init_args.stream", "true", "--data.init_args.length", "50", "--data.init_args.batch_size", "8"]
OPTIONS = [*TINY_FAMILY, *STREAM, "--model.init_args.dropout", "0.2"]


def data(**settings):
    return [part for key, value in settings.items() for part in (f"--data.init_args.{key}", str(value))]


def trainer(**settings):
    return [part for key, value in settings.items() for part in (f"--trainer.{key}", str(value))]


def test_epochs_end_where_the_stream_does(lockstep):
    run = lockstep("fit", *OPTIONS, *trainer(max_epochs=3), name="a")
    assert sorted(run.series("train/loss")) == list(range(1, 22))
    assert sorted(run.series("val/loss")) == [7, 14, 21]
    assert all(0 <= share <= 1 for share in run.series("train/data_wait").values())
    log = sample_log(run.folder)
    assert [len(log[step][1]) for step in range(7)] == [8] * 6 + [2]
    for epoch in range(3):
        seen = sorted(sample for number, samples in log.values() if number == epoch for sample in samples)
        assert seen == list(range(50))


@pytest.mark.parametrize(
    ("first", "whole", "workers"),
    [
        ({"max_steps": 11}, {"max_steps": 20}, 0),
        slow({"max_steps": 11}, {"max_steps": 20}, 2),
        slow({"max_steps": 14}, {"max_steps": 20}, 0),  # at the end of an epoch
        ({"max_epochs": 2}, {"max_epochs": 4}, 0),
        slow({"max_epochs": 2, "limit_train_batches": 5}, {"max_epochs": 4, "limit_train_batches": 5}, 2),
        slow({"max_epochs": 2, "limit_train_batches": 1}, {"max_epochs": 4, "limit_train_batches": 1}, 0),
    ],
    ids=str,
)
def test_a_stopped_run_resumes_bit_identically(lockstep, first, whole, workers):
    options = [*OPTIONS, *data(num_workers=workers)]
    through = lockstep("fit", *options, *trainer(**whole), name="through")
    lockstep("fit", *options, *trainer(**first), name="stopped")
    resumed = lockstep("fit", *options, *trainer(**whole), "--ckpt_path", "last", name="stopped")
    assert differences(sample_log(resumed.folder), sample_log(through.folder)) == []
    assert resumed.series("train/loss") == through.series("train/loss")
    expected = through.series("val/loss")  # the first start has validated its last step, too
    assert {step: value for step, value in resumed.series("val/loss").items() if step in expected} == expected


def test_a_run_resumes_from_its_best_checkpoint(lockstep):
    """It is saved in the validation at the end of an epoch, where Lightning's counters stand between two epochs."""
    through = lockstep("fit", *OPTIONS, *trainer(max_steps=20), name="through")
    stopped = lockstep("fit", *OPTIONS, *trainer(max_steps=7), name="stopped")
    (stopped.folder / "checkpoints/last.ckpt").unlink()
    resumed = lockstep("fit", *OPTIONS, *trainer(max_steps=20), "--ckpt_path", "last", name="stopped")
    assert differences(sample_log(resumed.folder), sample_log(through.folder)) == []
    assert resumed.series("train/loss") == through.series("train/loss")
    assert resumed.series("val/loss") == through.series("val/loss")


@pytest.mark.parametrize("stream", ["true", slow("false")])
def test_a_stream_resumes_with_another_accumulation(lockstep, stream):
    options = [*TINY_FAMILY, *STREAM, *data(stream=stream)]
    through = lockstep("fit", *options, *trainer(max_steps=20), name="through")
    lockstep("fit", *options, *trainer(max_steps=11), *data(micro_batch_size=2), name="stopped")
    on = [*data(micro_batch_size=4, num_workers=2), "--ckpt_path", "last"]
    resumed = lockstep("fit", *options, *trainer(max_steps=20), *on, name="stopped")
    assert differences(sample_log(resumed.folder), sample_log(through.folder)) == []
    assert_same_series(resumed, through)


def test_overfit_batches_repeats_the_same_batches(lockstep):
    run = lockstep("fit", *OPTIONS, *trainer(overfit_batches=2, max_epochs=3), name="a")
    seen = [samples for _, samples in sample_log(run.folder).values()]
    assert len(seen) == 6
    assert seen[:2] == seen[2:4] == seen[4:]


def test_a_stream_is_validated_within_an_epoch(lockstep):
    run = lockstep("fit", *OPTIONS, *trainer(max_epochs=1, val_check_interval=3), name="a")
    assert sorted(run.series("val/loss")) == [3, 6, 7], "as with data of known length"


def test_a_schedule_with_an_end_requires_max_steps(lockstep):
    cosine = [*OPTIONS, "--model.init_args.schedule", "cosine"]
    with pytest.raises(ValueError, match="max_steps .for a stream, whose length is unknown"):
        lockstep("fit", *cosine, *trainer(max_epochs=4), name="refused")
    through = lockstep("fit", *cosine, *trainer(max_epochs=4, max_steps=21), name="through")
    assert through.series("train/learning_rate")[21] < 1e-5
    lockstep("fit", *cosine, *trainer(max_epochs=2, max_steps=21), name="stopped")
    resumed = lockstep("fit", *cosine, *trainer(max_epochs=4, max_steps=21), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")


def test_another_stream_is_refused_in_the_middle_of_an_epoch(lockstep, monkeypatch):
    lockstep("fit", *OPTIONS, *trainer(max_steps=11), name="a")
    monkeypatch.setattr("tests.support.families.tiny_linear.NumberStream.identity", "letters")
    with pytest.raises(ValueError, match="4 batches into epoch 1 with stream numbers, this run has stream letters"):
        lockstep("fit", *OPTIONS, *trainer(max_steps=20), "--ckpt_path", "last", name="a")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (trainer(max_steps=9, limit_train_batches=9), "limit_train_batches is 9 steps, but epoch 0 .* has only 7"),
        ([*trainer(max_steps=9), *data(length=0)], "no record at position 0 of epoch 0: it is empty"),
    ],
)
def test_an_endless_epoch_is_refused(lockstep, options, message):
    with pytest.raises(SystemExit) as end:
        lockstep("fit", *OPTIONS, *options, name="a")
    assert end.value.code == 1
    assert isinstance(end.value.__cause__, CollectiveError)
    assert re.search(message, str(end.value.__cause__))


@pytest.mark.distributed
@pytest.mark.parametrize(("lacking", "batch", "message"), [(16, 4, "8, 0"), slow(3, 5, "8, 5")])
def test_a_stream_that_is_shorter_on_one_process_stops_all(team, lacking, batch, message):
    """48 records on the first process, fewer on the second (scenario 11 of the faults).

    Plain Lightning: one process finishes its epoch, the other fails in the middle of a step with gloo's error, or waits
    for ever with NCCL.
    """
    short = data(length=48, short_process=1, short_by=lacking)
    run = team("fit", *OPTIONS, *short, *trainer(max_steps=20), name="a", processes=2)
    assert run.end_cleanly() == [1, 1], run.output
    assert f"ran out on rank 1 at global batch {batch} of epoch 0: the ranks find {message} records" in run.output
    assert "Traceback" not in run.output
    assert len(sample_log(run.folder)) == batch - 1, "it is known one batch ahead"
