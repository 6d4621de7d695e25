"""Unusable samples are named by their rank, counted over all ranks, and stop all ranks in the same step."""

import json
import re

import numpy as np
import pytest
import yaml

from engine.data.epoch_order import global_batches
from tests.support.data_files.vision_language_files import Sample, colored, png, write_llava
from tests.support.families.colored_squares import write_config
from tests.tiers import slow

SIZE, BATCH = 40, 8  # 5 steps an epoch
ORDER = [global_batches(SIZE, BATCH, seed=1, epoch=epoch) for epoch in range(2)]
# Of the second batch two that the second process has and none of the first's; of the fourth both processes' samples.
BROKEN = sorted(map(int, [*ORDER[0][1][[1, 3]], *ORDER[0][3][[0, 1]]]))


def steps_of(broken):
    """{step: how many of these samples were drawn up to it} in two epochs."""
    drawn = [int(np.isin(batch, broken).sum()) for epoch in ORDER for batch in epoch]
    return dict(enumerate(np.cumsum(drawn).tolist(), 1))


@pytest.fixture
def options(tmp_path):
    """A run of two epochs over samples some of which are broken: an image that is none, a text with a special token."""
    samples = [colored(number) for number in range(SIZE)]
    for index, number in enumerate(BROKEN):
        turns, images = samples[number]
        special = [(role, text + "<|im_end|>") for role, text in turns]
        samples[number] = Sample(special, images) if index % 2 else Sample(turns, [b"no image"])
    write_llava(tmp_path / "train.json", samples)
    (tmp_path / "validation").mkdir()
    validation = [colored(number) for number in range(100, 112)]
    validation[7] = validation[7]._replace(images=[png((1, 2, 3))[:40]])
    write_llava(tmp_path / "validation/chats.json", validation)
    config = {
        "seed_everything": 1,
        "data": {
            "class_path": "ImageChats",
            "init_args": {
                "train": [{"path": "train.json"}],
                "validation": [{"path": "validation/chats.json"}],
                "batch_size": BATCH,
                "evaluation_batch_size": 2,
            },
        },
        "trainer": {"max_steps": -1, "max_epochs": 2, "limit_val_batches": 0},
        "replica_consistency": {"every_n_steps": 1},
        "last_checkpoint": {"every_n_steps": 5},
    }
    (tmp_path / "data.yaml").write_text(yaml.safe_dump(config))
    return [*write_config(tmp_path), "--config", str(tmp_path / "data.yaml")]


def data(**settings):
    texts = {key: value if isinstance(value, str) else json.dumps(value) for key, value in settings.items()}
    return [part for key, text in texts.items() for part in (f"--data.init_args.{key}", text)]


def skip(most):
    return data(on_bad_sample="skip", max_bad_samples=most)


def named(number):
    return f"train.json, record {number}"


@pytest.mark.parametrize("workers", [slow(0), 1])
def test_the_first_unusable_sample_stops_all_and_is_named(options, team, workers):
    pair = team("fit", *options, *data(num_workers=workers), name="a", processes=2)
    assert pair.end_cleanly(120) == [2, 2], pair.output
    first = [number for number in ORDER[0][1][[1, 3]].tolist() if named(number) in pair.logs[1]]
    assert first, pair.output
    assert re.search(rf"loading global batch 1 .* failed: .*{named(first[0])}\b", pair.logs[1]), pair.output


def test_unusable_samples_are_skipped_on_all_ranks(options, lockstep, team):
    """The second step has two samples less on one process alone, the fourth one less on each."""
    options = [*options, *skip(100)]
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *options, name="pair", processes=2).succeeded(120)
    losses, others = alone.series("train/loss"), pair.series("train/loss")
    assert list(losses) == list(others) == list(range(1, 11))
    assert max(abs(losses[step] - others[step]) for step in losses) < 1e-5
    assert alone.series("train/bad_samples") == pair.series("train/bad_samples") == steps_of(BROKEN)
    for number in BROKEN:
        met = [int(np.flatnonzero(batch == number)[0]) % 2 for epoch in ORDER for batch in epoch if number in batch]
        for process, printed in enumerate(pair.logs):
            assert ("skipped: " in printed and named(number) in printed) == (process in met), (number, pair.output)
    assert "train/too_long_samples" not in (pair.folder / "metrics.jsonl").read_text()


def test_one_more_than_the_limit_stops_all_in_the_same_step(options, team):
    pair = team("fit", *options, *skip(3), name="a", processes=2)
    assert pair.end_cleanly(120) == [2, 2], pair.output
    assert "4 samples of the training cannot be used, but data.init_args.max_bad_samples is 3" in pair.output
    drawn = steps_of(BROKEN)
    assert list(pair.series("train/bad_samples").items()) == [(step, drawn[step]) for step in (1, 2, 3)]


@pytest.mark.slow
def test_the_limit_is_checked_at_log_steps_and_epoch_ends(options, team):
    """So that no step waits for the device: step 4 is above the limit, step 5 ends the epoch."""
    rarely = ["--trainer.log_every_n_steps", "3"]
    pair = team("fit", *options, *rarely, *skip(3), name="a", processes=2)
    assert pair.end_cleanly(120) == [2, 2], pair.output
    assert "4 samples of the training cannot be used" in pair.output
    assert list(pair.series("train/bad_samples").items()) == [(3, 2.0)]


@pytest.mark.slow
def test_samples_skipped_before_a_resume_count(options, lockstep, team):
    """The number of processes changes; a sample that is drawn in every epoch counts once, and in the metric again."""
    enough = skip(len(BROKEN))
    lockstep("fit", *options, *enough, "--trainer.max_epochs", "1", name="a")
    pair = team("fit", *options, *enough, "--ckpt_path", "last", name="a", processes=2)
    assert pair.end(120) == [0, 0], pair.output
    assert pair.series("train/bad_samples") == steps_of(BROKEN)
    fewer = [*skip(len(BROKEN) - 1), "--trainer.max_epochs", "3", "--ckpt_path", "last"]
    again = team("fit", *options, *fewer, name="a", processes=2)
    assert again.end_cleanly(120) == [2, 2], again.output
    assert "4 samples of the training cannot be used, but data.init_args.max_bad_samples is 3" in again.output


@pytest.mark.slow
def test_long_samples_are_dropped_and_counted(options, lockstep, team, tmp_path):
    """Longer texts at the second process's positions of the second batch."""
    samples = [colored(number) for number in range(SIZE)]
    long = sorted(ORDER[0][1][[1, 3]].tolist())
    for number in long:
        (role, text), *rest = samples[number].turns
        samples[number] = samples[number]._replace(turns=[(role, text + " and on" * 50), *rest])
    write_llava(tmp_path / "train.json", samples)
    options = [*options, *data(max_length=64, too_long="drop", packed_length=64)]
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *options, name="pair", processes=2).succeeded(120)
    assert alone.series("train/too_long_samples") == pair.series("train/too_long_samples") == steps_of(long)
    losses, others = alone.series("train/loss"), pair.series("train/loss")
    assert max(abs(losses[step] - others[step]) for step in losses) < 1e-5
    log = (alone.folder / "train.log").read_text()
    assert all(f"{named(number)}): " in log for number in long)
    assert "max_length is 64" in log


@pytest.mark.slow
def test_an_evaluation_skips_unusable_samples(options, lockstep, team):
    options = [*options, *skip(100), "--trainer.max_epochs", "1", "--trainer.limit_val_batches", "1.0"]
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *options, *data(num_workers=1), name="pair", processes=2).succeeded(120)
    for metric in ("val/bad_samples", "val/loss", "val/baseline/blind/loss"):
        ours, theirs = alone.series(metric), pair.series(metric)
        assert list(ours) == list(theirs) == [5], metric
        assert abs(ours[5] - theirs[5]) < 1e-5, metric
    assert alone.series("val/bad_samples") == {5: 1.0}
    assert sum("validation/chats.json, record 7" in printed for printed in pair.logs) == 1, pair.output


@pytest.mark.slow
def test_an_evaluation_with_too_many_stops_all(options, lockstep, team, tmp_path):
    lockstep("fit", *options, *skip(100), "--trainer.max_epochs", "1", name="a")
    few = [colored(number)._replace(images=[b"no image"]) for number in range(3)]
    (tmp_path / "test").mkdir()
    write_llava(tmp_path / "test/chats.json", few)
    test = data(test=[{"path": "test/chats.json"}], on_bad_sample="skip", max_bad_samples=2)
    pair = team("test", *options, *test, "--ckpt_path", "last", name="a", processes=2)
    assert pair.end_cleanly(120) == [2, 2], pair.output
    assert "3 samples of the evaluation cannot be used, but data.init_args.max_bad_samples is 2" in pair.output


@pytest.mark.slow
def test_a_question_that_cannot_be_used_keeps_its_line(options, lockstep, team, tmp_path):
    lockstep("fit", *options, *skip(100), "--trainer.max_epochs", "1", name="a")
    (tmp_path / "a.png").write_bytes(png((9, 9, 9)))
    (tmp_path / "b.png").write_bytes(b"no image")
    lines = [{"image": name, "question": "?", "id": number} for number, name in enumerate(("a.png", "b.png", "a.png"))]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)))
    asked = data(questions="questions.jsonl", evaluation_batch_size=1)
    pair = team("predict", *options, *asked, *skip(1), "--ckpt_path", "last", name="a", processes=2)
    assert pair.end(120) == [0, 0], pair.output
    answers = pair.predictions()
    assert [answer["id"] for answer in answers] == [0, 1, 2]
    assert answers[1]["answer"] is None
    assert "line 2, image 1 of 1" in answers[1]["why"]
    assert isinstance(answers[0]["answer"], str)
    assert "why" not in answers[0]
    strict = team("predict", *options, *asked, "--ckpt_path", "last", name="a", processes=2)
    codes = strict.end_cleanly(120)
    assert 0 not in codes, strict.output
    assert "questions.jsonl, line 2" in strict.output, strict.output
