"""Ranks that divide the layers of a language model train as one process does."""

import json

import pytest
import yaml

from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER, write_config
from tests.support.outputs.metric_series import assert_same_series

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TRAINED = ("train/loss", "train/gradient_norm")
METRICS = (*TRAINED, "val/loss", "val/baseline/blind/loss", "val/exact")
STRATEGY = "engine.strategies.tensor_parallel.TensorParallelStrategy"


@pytest.fixture
def options(tmp_path):
    """(of one process, of groups of two ranks): chats of no, two and one image; every step is clipped."""

    def write(checkpoints="full", family="qwen2", tied=False, **model):
        network = {**LANGUAGE_MODEL, "model_type": family, "tie_word_embeddings": tied}
        tower = {"config": TOWER, "trainable": "full"}
        config = write_config(
            tmp_path, language_model={"config": network, **model}, vision_tower=tower, weight_decay=0.1
        )
        strategy = {"class_path": STRATEGY, "init_args": {"tensor_parallel": 2, "state_dict_type": checkpoints}}
        steps = {"max_steps": 4, "val_check_interval": 2, "check_val_every_n_epoch": None, "gradient_clip_val": 0.1}
        steps["limit_val_batches"] = 3
        data = {"images": [0, 2, 1], "num_samples": 21, "batch_size": 8, "evaluation_batch_size": 4}
        more = {
            "trainer": steps,
            "checkpoints": {"trainable_only": False},
            "best_checkpoint": {"keep": 2},
            "last_checkpoint": {"keep": 2},
            "data": {"init_args": data},
        }
        for name, content in {"more": more, "groups": {"trainer": {"strategy": strategy}}}.items():
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        all_options = [*config, "--config", str(tmp_path / "more.yaml")]
        return all_options, [*all_options, "--config", str(tmp_path / "groups.yaml")]

    return write


def bytes_of_steps(run):
    return json.loads((run.folder / "collective_bytes.json").read_text())["steps"]


MODELS = {
    "qwen2": {},
    "norms of heads": {"family": "qwen3", "checkpoints": "sharded"},
    "lora": {"tied": True, "trainable": "lora", "checkpoints": "sharded"},
}


@pytest.mark.parametrize("model", MODELS)
def test_two_ranks_train_as_one_and_one_resumes(lockstep, team, options, model):
    replicated, groups = options(**MODELS[model])
    alone = lockstep("fit", *replicated, name="alone")
    counted = ["--trainer.callbacks+=benchmarks.network.collective_bytes.CollectiveBytes"]
    pair = team("fit", *groups, *counted, "--trainer.max_steps", "2", name="pair", processes=2).succeeded(400)
    lockstep("fit", *replicated, "--ckpt_path", "last", name="pair")
    assert_same_series(alone, pair, METRICS)
    assert sorted(alone.series("train/loss")) == [1, 2, 3, 4]
    assert "suboptimal" not in pair.output
    if model == "qwen2":  # seven sums in each of two layers, and those of six norms
        assert bytes_of_steps(pair)[0]["_c10d_functional::all_reduce"]["calls"] == 2 * 7 + 6


def test_two_groups_train_resume_and_predict_as_one_process(lockstep, team, options):
    replicated, groups = options("sharded")
    alone = lockstep("fit", *replicated, name="alone")
    often = ["--last_checkpoint.every_n_steps", "2", "--last_checkpoint.keep", "3"]
    straight = team("fit", *groups, *often, name="straight", processes=4).succeeded(400)
    assert_same_series(alone, straight, METRICS)

    early = straight.folder / "checkpoints/last-2.ckpt"  # the epoch ends at step 3
    unvalidated = ["--trainer.limit_val_batches", "0", "--ckpt_path", str(early)]
    resumed = team("fit", *groups, *unvalidated, name="resumed", processes=4).succeeded(400)
    assert resumed.starts == [2]
    for metric in TRAINED:
        assert resumed.series(metric) == {step: straight.series(metric)[step] for step in (3, 4)}, "to the bit"

    lockstep("predict", *replicated, name="alone")
    team("predict", *groups, name="straight", processes=4).succeeded(400)
    predictions = [(run.folder / "predictions.jsonl").read_text() for run in (straight, alone)]
    assert len(predictions[0].splitlines()) == 21
    assert predictions[0] == predictions[1]


def test_replicas_between_nodes_train_as_one_process(lockstep, team, options):
    """HYBRID_SHARD on two nodes, each with a group of two ranks."""
    replicated, groups = options("sharded")
    between_nodes = ["--trainer.strategy.init_args.sharding_strategy", "HYBRID_SHARD"]
    alone = lockstep("fit", *replicated, name="alone")
    nodes = team("fit", *groups, *between_nodes, name="nodes", processes=4, node_size=2).succeeded(400)
    assert_same_series(alone, nodes, METRICS)


def test_two_groups_in_bf16_train_near_one_process(lockstep, team, options):
    """Parts of a sum are rounded to 8 bits on each rank, so the numbers agree to that."""
    replicated, groups = options()
    mixed = ["--trainer.precision", "bf16-mixed"]
    alone = lockstep("fit", *replicated, *mixed, name="alone")
    four = team("fit", *groups, *mixed, name="four", processes=4).succeeded(400)
    assert_same_series(alone, four, ("train/loss", "val/loss"), 0.05)
