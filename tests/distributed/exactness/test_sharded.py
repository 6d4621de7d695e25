"""FSDP trains and evaluates a vision-language model as one process does, and no rank hangs."""

import json

import pytest
import yaml

from tests.support.families.coloured_squares import LANGUAGE_MODEL, TOWER, write_config, write_language_model
from tests.tiers import slow

LOSSES = ("train/loss", "train/gradient_norm", "val/loss", "val/baseline/blind/loss", "val/exact")


@pytest.fixture
def options(tmp_path):
    """(of one process, of shards): chats of no, two and one image in turn, so processes have answers of other lengths.

    Of the 21 samples, in batches of 4, a process has one less than the other in the end.
    """

    def write(checkpoints, tied=False, precision="32-true", tower=None, pretrained=False, **model):
        # Random weights are others where they are made in another format.
        made = {"config": {**LANGUAGE_MODEL, "tie_word_embeddings": tied}}
        if pretrained:
            write_language_model(tmp_path / "language_model")
            made = {"path": str(tmp_path / "language_model")}
        config = write_config(
            tmp_path,
            language_model={**made, **model},
            vision_tower={"config": TOWER, **(tower or {"trainable": "full"})},
            weight_decay=0.1,
        )
        trainer = {"max_steps": 5, "val_check_interval": 2, "check_val_every_n_epoch": None, "precision": precision}
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
        whole = [*config, "--config", str(tmp_path / "more.yaml")]
        return whole, [*whole, "--config", str(tmp_path / "sharded.yaml")]

    return write


def same(one, other, tolerance=1e-4):
    for metric in LOSSES:
        ours, theirs = one.series(metric), other.series(metric)
        assert ours and ours.keys() == theirs.keys(), metric
        assert all(abs(ours[step] - theirs[step]) <= tolerance for step in ours), (metric, ours, theirs)


def ended(pair):
    assert pair.end(120) == [0, 0], pair.output
    assert pair.survivors == []
    return pair


def losses_of_tests(run):
    records = map(json.loads, (run.folder / "metrics.jsonl").read_text().splitlines())
    return [record["test/loss"] for record in records if "test/loss" in record]


MODELS = {
    "tied": {"checkpoints": "sharded", "tied": True},
    "untied": {"checkpoints": "full", "activation_checkpointing": True},
    "lora": {"checkpoints": "sharded", "tied": True, "trainable": "lora"},
}


@pytest.mark.parametrize("model", ["tied", slow("untied"), slow("lora")])
def test_shards_train_as_one_process_does(lockstep, team, options, model):
    whole, sharded = options(**MODELS[model])
    alone = lockstep("fit", *whole, name="alone")
    pair = ended(team("fit", *sharded, name="pair", processes=2))
    same(alone, pair)

    if MODELS[model]["checkpoints"] == "full":  # one file, which one process reads as well
        ended(team("test", *sharded, name="pair", processes=2))
        lockstep("test", *whole, name="pair")
        one, other = losses_of_tests(pair)
        assert abs(one - other) < 1e-4
        return  # on CPUs torch gathers both of Adam's means into one place, so a run could not go on
    further = ["--ckpt_path", "last", "--trainer.max_steps", "8"]
    lockstep("fit", *whole, *further, name="alone")
    ended(team("fit", *sharded, *further, name="pair", processes=2))
    same(alone, pair)
    assert sorted(alone.series("train/loss")) == list(range(1, 9))


FORMATS = {
    "lora": {"pretrained": True, "trainable": "lora"},
    "last layers": {
        "trainable": "last_n_layers", "last_n_layers": 1, "tower": {"trainable": "last_n_layers", "last_n_layers": 1},
    },
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("model", FORMATS.values(), ids=FORMATS)
def test_mixed_precision_with_frozen_weights(lockstep, team, options, model):
    whole, sharded = options("full", precision="bf16-mixed", **model)
    alone = lockstep("fit", *whole, name="alone")
    pair = ended(team("fit", *sharded, name="pair", processes=2))
    for metric in ("train/loss", "val/loss"):
        ours, theirs = alone.series(metric), pair.series(metric)
        assert ours and ours.keys() == theirs.keys()
        assert all(abs(ours[step] - theirs[step]) < 0.05 for step in ours), (metric, ours, theirs)
