"""Bad samples of a family without code of its own for them are skipped, listed and limited on every rank."""

import numpy as np
import pytest

from engine.data.epoch_order import global_batches
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.outputs.jsonl import read_jsonl

SAMPLE = 21
DATA = {"length": 48, "batch_size": 8, "fault": "bad", "fault_sample": SAMPLE, "on_bad_sample": "skip"}
OPTIONS = [*TINY_FAMILY, "--trainer.max_steps", "12"]  # two epochs


def data(**settings):
    return [part for key, value in settings.items() for part in (f"--data.init_args.{key}", str(value).lower())]


def steps_of_sample():
    """{step: how often it was drawn up to it}"""
    batches = [batch for epoch in (0, 1) for batch in global_batches(48, 8, seed=1, epoch=epoch)]
    return dict(enumerate(np.cumsum([SAMPLE in batch for batch in batches]).tolist(), 1))


def test_a_bad_sample_is_skipped_on_all_ranks(lockstep, team):
    alone = lockstep("fit", *OPTIONS, *data(**DATA), name="alone")
    pair = team("fit", *OPTIONS, *data(**DATA, num_workers=1), name="pair", processes=2).succeeded(120)
    losses, others = alone.series("train/loss"), pair.series("train/loss")
    assert list(losses) == list(others) == list(range(1, 13))
    assert max(abs(losses[step] - others[step]) for step in losses) < 1e-5
    assert alone.series("train/bad_samples") == pair.series("train/bad_samples") == steps_of_sample()
    (first,) = [step for step, times in steps_of_sample().items() if times == 1][:1]
    for run in (alone, pair):
        (line,) = read_jsonl(run.folder / "bad_samples.jsonl")  # once, drawn twice
        assert (line["stage"], line["sample"], line["epoch"]) == ("train", SAMPLE, 0)
        assert line["what"] == f"sample {SAMPLE}: injected"
        assert line["step"] == first - 1
    assert any(f"skipped: sample {SAMPLE}: injected" in printed for printed in pair.logs)


@pytest.mark.slow
def test_one_more_than_the_limit_stops_all_at_the_same_step(team):
    run = team("fit", *OPTIONS, *data(**DATA, max_bad_samples=1, stream=True), name="a", processes=2)
    assert run.end_cleanly(120) == [2, 2], run.output
    assert "2 samples of the training cannot be used, but data.init_args.max_bad_samples is 1" in run.output
    lines = read_jsonl(run.folder / "bad_samples.jsonl")
    # In a stream a sample's number is its position, which differs in each epoch.
    assert [(line["epoch"], line["what"]) for line in lines] == [(0, "sample 21: injected"), (1, "sample 21: injected")]
    assert list(run.series("train/bad_samples").values())[-1] == 1
