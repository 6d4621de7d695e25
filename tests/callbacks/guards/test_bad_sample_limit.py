"""bad_samples.jsonl has one line per sample, also after a kill in the middle of a line."""

import json
import os
from types import SimpleNamespace

import pytest
import torch

from callbacks.guards.bad_sample_limit import BadSampleLimit, BadSampleList
from engine.data.sample_loading import SkippedSample
from engine.data.skip_counters import SkipCounter
from engine.distributed.errors import CollectiveInputError
from engine.distributed.step_counters import StepCounters
from tests.support.fake_trainer import fake_trainer
from tests.support.outputs.jsonl import read_jsonl


def bad(sample, what="cut off"):
    return SkippedSample("bad", f"{sample}.png is {what}", sample)


def lines(folder):
    return read_jsonl(folder / "bad_samples.jsonl")


def test_each_sample_of_a_stage_is_listed_once(tmp_path):
    BadSampleList(tmp_path).add("train", 0, 3, [[bad(5)], [bad(7, "größer")]])
    BadSampleList(tmp_path).add("train", 1, 9, [[bad(7, "größer")], [bad(5), bad(8)]])
    BadSampleList(tmp_path).add("val", 1, 9, [[bad(5)], []])
    keys = "stage", "sample", "epoch", "step", "process"
    assert [tuple(line[key] for key in keys) for line in lines(tmp_path)] == [
        ("train", 5, 0, 3, 0),
        ("train", 7, 0, 3, 1),
        ("train", 8, 1, 9, 1),
        ("val", 5, 1, 9, 0),
    ]
    assert lines(tmp_path)[1]["what"] == "7.png is größer"


def test_a_torn_line_is_passed_over(tmp_path):
    (tmp_path / "bad_samples.jsonl").write_text('{"stage": "train", "sample": 5, "wh\n[1]\n')
    BadSampleList(tmp_path).add("train", 0, 3, [[bad(5, "x" * 5000)]])
    last = json.loads((tmp_path / "bad_samples.jsonl").read_text().splitlines()[-1])
    assert last["sample"] == 5
    assert len(last["what"]) == 2000


def test_a_record_after_a_torn_line_is_a_line_of_its_own(tmp_path):
    (tmp_path / "bad_samples.jsonl").write_text('{"stage": "train", "sample": 5, "wh')
    BadSampleList(tmp_path).add("train", 0, 3, [[bad(7)]])
    torn, record = (tmp_path / "bad_samples.jsonl").read_text().splitlines()
    assert torn == '{"stage": "train", "sample": 5, "wh'
    assert json.loads(record)["sample"] == 7


def test_a_file_name_with_a_line_separator_is_listed_once(tmp_path):
    for epoch in range(2):
        BadSampleList(tmp_path).add("train", epoch, 3, [[bad("1\u20282")]])
    assert len((tmp_path / "bad_samples.jsonl").read_text(encoding="utf-8").strip("\n").split("\n")) == 1


def test_a_file_name_that_is_not_utf_8_is_listed_and_counted(tmp_path):
    """A folder of images may have names in Latin-1; a bad one among them must not end the training."""
    skipped = bad(os.fsdecode(b"donn\xe9es"))
    BadSampleList(tmp_path).add("train", 0, 3, [[skipped]])
    assert [line["what"] for line in lines(tmp_path)] == [skipped.what]
    counter = SkipCounter(StepCounters())
    counter.record_bad([[skipped], [skipped], [bad(5)]])
    assert len(counter.different) == 2


def test_the_error_of_a_prediction_names_the_command(tmp_path):
    """Not all predictions answer questions."""
    loader = SimpleNamespace(next_skipped=lambda: [bad(5)])
    trainer = fake_trainer("predict", predict_dataloaders=loader, default_root_dir=tmp_path, current_epoch=0)
    data = SimpleNamespace(skips_bad_samples=True, max_bad_samples=0)
    module = SimpleNamespace(data=data, device=torch.device("cpu"))
    limit = BadSampleLimit()
    limit.on_predict_epoch_start(trainer, module)
    limit.on_predict_batch_start(trainer, module, None, 0)
    with pytest.raises(CollectiveInputError, match="1 samples of the prediction cannot be used"):
        limit.on_predict_epoch_end(trainer, module)
