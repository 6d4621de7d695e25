"""Chats with several images, one or none on any rank: the training is the same, and no rank hangs."""

import json
import shutil
import signal

import pytest
import yaml

from tests.support.data_files.vision_language_files import Sample, png, write_tar
from tests.support.families.colored_squares import write_config
from tests.support.faults.step_faults import fault
from tests.support.outputs.metric_series import assert_same_series
from tests.support.outputs.sample_log import differences, read, sample_log

MODULE = "tests.support.families.striped_squares"

# 50 samples in batches of 12: the last batch has two samples, so the third rank has none of it.
SIZES = {"num_samples": 50, "batch_size": 12, "evaluation_batch_size": 8, "images": [0, 2, 1]}
STRIPED = {"num_samples": 32, "batch_size": 8, "evaluation_batch_size": 8, "images": [1, 0]}

LOSSES = ("train/loss", "val/loss", "val/baseline/blind/loss")


@pytest.fixture
def options(tmp_path):
    """A run of two epochs with every weight trained, its replicas compared to the bit after every step."""
    config = write_config(tmp_path)
    more = {
        "trainer": {"max_steps": -1, "max_epochs": 2, "callbacks": [{"class_path": f"{MODULE}.Seen"}]},
        "replica_consistency": {"every_n_steps": 1},
    }
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    return [*config, "--config", str(tmp_path / "more.yaml")]


def data(**settings):
    return [part for key, value in settings.items() for part in (f"--data.init_args.{key}", json.dumps(value))]


def test_one_and_three_processes_train_the_same(lockstep, team, options):
    options = [*options, *data(**SIZES, packed_length=40)]
    alone = lockstep("fit", *options, name="alone")
    three = team("fit", *options, name="three", processes=3).succeeded(120)
    assert_same_series(alone, three, LOSSES)
    assert sorted(alone.series("train/loss")) == list(range(1, 11))
    log = sample_log(three.folder)
    assert log == sample_log(alone.folder)
    for epoch in range(2):
        seen = [sample for number, samples in log.values() if number == epoch for sample in samples]
        assert sorted(seen) == list(range(50)), "every sample once"
    assert [] in [record["samples"] for record in read(three.folder)], "a process without a sample took part"


@pytest.mark.slow
def test_images_on_one_process_alone_train_as_on_a_single_process(lockstep, team, options):
    """The tower, which trains, has no image on the second process in any step."""
    options = [*options, *data(**STRIPED, length_groups=2), "--data", f"{MODULE}.StripedSquares"]
    alone = lockstep("fit", *options, name="alone")
    pair = team("fit", *options, name="pair", processes=2).succeeded(120)
    views = [(record["samples"][0] % 2, record["views"]) for record in read(pair.folder)]
    assert sorted(set(views)) == [(0, 4), (1, 0)]
    assert len(views) == 16
    assert_same_series(alone, pair, LOSSES)
    assert sample_log(pair.folder) == sample_log(alone.folder)


@pytest.mark.slow
def test_evaluation_is_the_same_on_two_processes(lockstep, team, options):
    """In batches of 8 the first process has four batches of the 50 samples, and the second has three."""
    options = [*options, *data(**SIZES)]
    lockstep("fit", *options, name="model")
    lockstep("test", *options, name="model")
    pair = team("test", *options, name="model", processes=2).succeeded(120)
    alone, both = pair.test_metrics
    assert alone.keys() == both.keys() >= {"test/loss", "test/exact", "test/baseline/blind/loss"}
    assert all(abs(alone[name] - both[name]) < 1e-6 for name in alone), (alone, both)


def write_shards(folder):
    """34 samples in shards of unequal length, of which the first has text alone."""
    images = [png((200, 0, 0), 16), png((0, 0, 200), 16)]
    text = [Sample([("user", f"{n} ?"), ("assistant", "none")]) for n in range(11)]
    one = [Sample([("user", f"<image> {n} ?"), ("assistant", "red")], images[:1]) for n in range(3)]
    two = [Sample([("user", f"<image><image> {n} ?"), ("assistant", "red blue")], images) for n in range(20)]
    for number, samples in enumerate((text, one, [], two)):
        write_tar(folder / f"train-{number}.tar", samples)


@pytest.mark.slow
def test_a_killed_run_on_shards_resumes_bit_identically_and_on_three_ranks(team, options, tmp_path):
    write_shards(tmp_path)
    config = {
        "class_path": "ImageChats",
        "init_args": {
            "train": [{"path": f"{tmp_path}/train-{{0..3}}.tar"}],
            "validation": [{"path": f"{tmp_path}/train-1.tar"}],
            "shuffle_window": 8,
            "batch_size": 6,
            "packed_length": 64,
        },
    }
    (tmp_path / "shards.yaml").write_text(yaml.safe_dump({"data": config}))
    options = [*options, "--config", str(tmp_path / "shards.yaml"), "--last_checkpoint.every_n_steps", "2"]

    through = team("fit", *options, name="through", processes=2)
    assert through.end(120) == [0, 0], through.output
    killed = team("fit", *options, *fault("SignalAt", name="SIGKILL", step=9, process=1), name="killed", processes=2)
    assert killed.end(120)[1] == -signal.SIGKILL, killed.output
    shutil.copytree(killed.folder, killed.folder.with_name("three"))
    again = [*options, "--ckpt_path", "last"]
    resumed = team("fit", *again, name="killed", processes=2).succeeded(120)
    three = team("fit", *again, name="three", processes=3).succeeded(120)

    assert sorted(through.series("train/loss")) == list(range(1, 13))
    assert_same_series(resumed, through, ("train/loss", "val/loss"), tolerance=0)
    assert_same_series(three, through, ("train/loss", "val/loss"))
    for run in (resumed, three):
        assert "resuming after step 8" in run.output
        assert differences(sample_log(run.folder), sample_log(through.folder)) == []
