"""Document QA, with and without figures: training and metrics are the same on any world size.

Tests and predictions: test_document_reports.py.
"""

import signal

import pytest
import yaml

from tests.support.families.tiny_documents import write_config
from tests.support.faults.step_faults import fault
from tests.support.outputs.sample_log import differences, read, sample_log

# 14 samples in batches of 6, of which each process computes one at a time: the last batch has two, so that of three
# processes one has nothing. Each sees the pages that answer its question, so three in four see no figure.
DATA = {
    "size": 14,
    "batch_size": 6,
    "micro_batch_size": 1,
    "evaluation_batch_size": 5,
    "option_orders": 2,
    "questions_per_chat": 1,
    "packed_length": 400,
    "retriever": {"kind": "oracle"},
}


@pytest.fixture
def options(tmp_path):
    """Two epochs with every weight trained, replicas compared to the bit after every step."""

    def write(**model):
        config = write_config(tmp_path, **model)
        more = {
            "trainer": {
                "max_steps": -1,
                "max_epochs": 2,
                "callbacks": [{"class_path": "tests.support.families.striped_squares.Seen"}],
            },
            "data": {"init_args": DATA},
            "replica_consistency": {"every_n_steps": 1},
            "last_checkpoint": {"every_n_steps": 2},
        }
        (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
        return [*config, "--config", str(tmp_path / "more.yaml")]

    return write


def metrics_of(run, stage):
    """{(step, name): value} of all that an evaluation found."""
    return {
        (record["step"], name): value
        for record in run.records
        for name, value in record.items()
        if name.startswith(stage)
    }


def same(ours, theirs, tolerance=1e-5):
    assert ours
    assert ours.keys() == theirs.keys()
    assert [key for key in ours if abs(ours[key] - theirs[key]) > tolerance * max(1, abs(ours[key]))] == []


@pytest.mark.slow
def test_a_killed_run_of_two_ranks_resumes_on_three(lockstep, team, options):
    settings = options(loss="contrastive_options", optimizer="muon")
    alone = lockstep("fit", *settings, name="alone")
    killed = team("fit", *settings, *fault("SignalAt", name="SIGKILL", step=5, process=1), name="run", processes=2)
    assert killed.end(120)[1] == -signal.SIGKILL, killed.output
    three = team("fit", *settings, "--ckpt_path", "last", name="run", processes=3).succeeded(120)
    assert "resuming after step 4" in three.output

    assert sorted(alone.series("train/loss")) == list(range(1, 7))
    same(alone.series("train/loss"), three.series("train/loss"))
    same(metrics_of(alone, "val/"), metrics_of(three, "val/"))
    assert {step for step, _ in metrics_of(alone, "val/")} == {3, 6}
    assert differences(sample_log(three.folder), sample_log(alone.folder)) == []
    seen = read(three.folder)
    assert {record["views"] > 0 for record in seen if record["samples"]} == {True, False}
    assert [] in [record["samples"] for record in seen], "a process without a sample took part"


@pytest.mark.slow
def test_shards_answer_as_one_process_does(lockstep, team, options, tmp_path):
    """FSDP: in an evaluation each process reads and scores as often as the others, whatever its questions need."""
    settings = [*options(), "--trainer.max_epochs", "1", "--model.evidence_questions", "3"]
    strategy = "tests.support.ranks.sharded_on_cpu.ShardedOnCPU"
    sharded = {"class_path": strategy, "init_args": {"state_dict_type": "full"}}
    (tmp_path / "sharded.yaml").write_text(
        yaml.safe_dump({"trainer": {"strategy": sharded}, "checkpoints": {"trainable_only": False}})
    )
    in_shards = [*settings, "--config", str(tmp_path / "sharded.yaml")]
    alone = lockstep("fit", *settings, name="alone")
    pair = team("fit", *in_shards, name="pair", processes=2)
    assert pair.end(120) == [0, 0], pair.output
    same(alone.series("train/loss"), pair.series("train/loss"), 1e-4)
    same(metrics_of(alone, "val/"), metrics_of(pair, "val/"), 1e-4)
    pair = team("test", *in_shards, name="pair", processes=2).succeeded(120)
    lockstep("test", *settings, name="alone")
    same(metrics_of(alone, "test/"), metrics_of(pair, "test/"), 1e-4)
