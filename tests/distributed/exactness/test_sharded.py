"""FSDP trains and evaluates a vision-language model as one process does, and no rank hangs."""

import shutil

import pytest
import yaml

from tests.conftest import TINY
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER, write_config, write_language_model
from tests.support.outputs.metric_series import assert_same_series
from tests.tiers import slow

LOSSES = ("train/loss", "train/gradient_norm", "val/loss", "val/baseline/blind/loss", "val/exact")


@pytest.fixture
def options(tmp_path):
    """(of one process, of shards): chats of no, two and one image in turn, so processes have answers of other lengths.

    Of the 21 samples, in batches of 4, a process has one less than the other in the end.
    """

    def write(checkpoints, tied=False, precision="32-true", tower=None, pretrained=False, **model):
        # Random weights are others where they are made in another format.
        source = {"config": {**LANGUAGE_MODEL, "tie_word_embeddings": tied}}
        if pretrained:
            write_language_model(tmp_path / "language_model")
            source = {"path": str(tmp_path / "language_model")}
        config = write_config(
            tmp_path,
            language_model={**source, **model},
            vision_tower={"config": TOWER, **(tower or {"trainable": "full"})},
            weight_decay=0.1,
        )
        trainer = {"max_steps": 3, "val_check_interval": 2, "check_val_every_n_epoch": None, "precision": precision}
        sharded = {"class_path": "tests.support.ranks.sharded_on_cpu.ShardedOnCPU"}
        sharded["init_args"] = {"state_dict_type": checkpoints}
        files = {
            "more": {
                "trainer": trainer,
                "checkpoints": {"trainable_only": False},
                "best_checkpoint": {"keep": 2},
                "last_checkpoint": {"keep": 2},
                "data": {
                    "init_args": {"images": [0, 2, 1], "num_samples": 21, "batch_size": 6, "evaluation_batch_size": 4}
                },
            },
            "sharded": {"trainer": {"strategy": sharded}},
        }
        for name, content in files.items():
            (tmp_path / f"{name}.yaml").write_text(yaml.safe_dump(content))
        all_options = [*config, "--config", str(tmp_path / "more.yaml")]
        return all_options, [*all_options, "--config", str(tmp_path / "sharded.yaml")]

    return write


def losses_of_tests(run):
    return [record["test/loss"] for record in run.records if "test/loss" in record]


MODELS = {
    "tied": {"checkpoints": "sharded", "tied": True},
    "untied": {"checkpoints": "full", "activation_checkpointing": True},
    "lora": {"checkpoints": "sharded", "tied": True, "trainable": "lora"},
}
BETWEEN_NODES = ["--trainer.strategy.init_args.sharding_strategy", "HYBRID_SHARD"]


@pytest.mark.parametrize("model", ["tied", slow("untied"), slow("lora")])
def test_shards_train_as_one_process_does(lockstep, team, options, model):
    replicated, sharded = options(**MODELS[model])
    begun = ["--checkpoints.trainable_only", "true"] if model == "lora" else []
    alone = lockstep("fit", *replicated, *begun, name="alone")
    pair = team("fit", *sharded, name="pair", processes=2).succeeded()
    assert_same_series(alone, pair, LOSSES, 1e-4)
    assert "FSDPVisionLanguageModel" not in (pair.folder / "train.log").read_text()

    further = ["--ckpt_path", "last", "--trainer.max_steps", "5"]  # an epoch has 4
    if model == "lora":  # one process saved it, without the frozen weights; then replicas on two nodes
        shutil.rmtree(pair.folder)
        shutil.copytree(alone.folder, pair.folder)
        resumed = team("fit", *sharded, *BETWEEN_NODES, *further, name="pair", processes=2, node_size=1).succeeded()
    else:
        resumed = team("fit", *sharded, *further, name="pair", processes=2).succeeded()
    lockstep("fit", *replicated, *further, name="alone")
    assert_same_series(alone, resumed, LOSSES, 1e-4)
    assert sorted(alone.series("train/loss")) == [1, 2, 3, 4, 5]
    if model == "untied":  # any strategy loads a checkpoint of shards
        lockstep("test", *replicated, name="pair")
        team("test", *sharded, name="pair", processes=2).succeeded()
        first, second = losses_of_tests(resumed)
        assert abs(first - second) < 1e-4


@pytest.mark.slow
@pytest.mark.parametrize("optimizer", ["muon", "adamw_8bit"])
def test_shards_of_two_ranks_resume_on_any_number(lockstep, team, tmp_path, optimizer):
    """The ranks evaluate 200 users in different numbers of passes. Muon needs whole matrices, and a state in
    8 bits has blocks of 256 elements: of 256 x 16 weights a rank of three has 86 x 16.
    """
    strategy = {"class_path": "engine.strategies.fsdp.VerifiedFSDPStrategy", "init_args": {"cpu_offload": True}}
    keep = {"best_checkpoint": {"keep": 2}, "last_checkpoint": {"keep": 2}, "checkpoints": {"trainable_only": False}}
    (tmp_path / "shards.yaml").write_text(yaml.safe_dump({"trainer": {"strategy": strategy}, **keep}))
    whole = [*TINY, "--data.init_args.batch_size", "12", "--model.init_args.optimizer", optimizer]
    whole += ["--trainer.gradient_clip_val", "0.1"]
    sharded = [*whole, "--config", str(tmp_path / "shards.yaml")]
    all_steps, save = ["--trainer.max_steps", "5"], ["--last_checkpoint.every_n_steps", "3"]
    alone = lockstep("fit", *whole, *all_steps, name="alone")
    straight = team("fit", *sharded, *all_steps, *save, name="straight", processes=2).succeeded()
    further = [*all_steps, "--ckpt_path", str(straight.folder / "checkpoints/last-1.ckpt")]
    one = lockstep("fit", *whole, *further, name="one")
    two, three = (team("fit", *sharded, *further, name=f"of{n}", processes=n).succeeded() for n in (2, 3))
    for metric in ("train/loss", "train/gradient_norm"):
        expected = alone.series(metric)
        assert list(expected) == [1, 2, 3, 4, 5]
        assert straight.series(metric) == pytest.approx(expected, abs=1e-5)
        for run in (one, two, three):  # the checkpoint has the metrics of its step
            assert run.series(metric) == pytest.approx({step: expected[step] for step in (3, 4, 5)}, abs=1e-5)
        assert two.series(metric).items() <= straight.series(metric).items(), "to the bit"


FORMATS = {
    "lora": {"pretrained": True, "trainable": "lora"},
    "last layers": {
        "trainable": "last_n_layers",
        "last_n_layers": 1,
        "tower": {"trainable": "last_n_layers", "last_n_layers": 1},
    },
}


@pytest.mark.slow
@pytest.mark.parametrize("model", FORMATS.values(), ids=FORMATS)
def test_mixed_precision_with_frozen_weights(lockstep, team, options, model):
    replicated, sharded = options("full", precision="bf16-mixed", **model)
    alone = lockstep("fit", *replicated, name="alone")
    pair = team("fit", *sharded, name="pair", processes=2).succeeded()
    assert_same_series(alone, pair, ("train/loss", "val/loss"), 0.05)
