"""The quickstart's two stages run in order; an ablation changes only the settings that it names."""

import math
import shutil
from pathlib import Path

import pytest
import yaml

from tests.conftest import REPOSITORY
from tests.tiers import slow

FOLDER = Path("configs/vision_language")
ABLATIONS = sorted((REPOSITORY / FOLDER / "ablation").glob("*.yaml"))
SECOND_ALONE = ("no_pretrain", "no_captions")
STAGES = ("quickstart_pretrain", "quickstart_sft")

SMALL = [
    "--model.init_args.language_model.config.hidden_size=16",
    "--model.init_args.language_model.config.intermediate_size=16",
    "--model.init_args.vision_tower.config.hidden_size=16",
    "--model.init_args.vision_tower.config.intermediate_size=16",
    "--model.init_args.max_new_tokens=3",
    "--data.init_args.num_samples=64",
    "--data.init_args.validation_size=20",
    "--data.init_args.test_size=20",
    "--data.init_args.num_workers=0",
    "--trainer.max_epochs=1",
    "--trainer.check_val_every_n_epoch=1",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]


@pytest.fixture
def run(lockstep, tmp_path):
    shutil.copytree(REPOSITORY / FOLDER, tmp_path / FOLDER)  # the second stage names the config of the first stage

    def fit(stage, *more):
        config = ["--config", str(FOLDER / f"{stage}.yaml")]
        return lockstep("fit", *config, *more, *SMALL, name=f"vision_language-{stage}-job1")

    return fit


def check(trained, stage):
    losses = trained.series("train/loss")
    assert sorted(losses) == [1, 2]
    assert all(map(math.isfinite, losses.values()))
    monitor = yaml.safe_load((REPOSITORY / FOLDER / f"{stage}.yaml").read_text())["best_checkpoint"]["monitor"]
    assert 0 <= trained.series(monitor)[2] <= 1
    assert {file.name for file in (trained.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}


@pytest.mark.parametrize("ablation", [None, slow("first_patch_only")])
def test_each_stage_starts_from_the_newest_run_of_the_stage_before(run, ablation):
    more = ["--config", str(FOLDER / f"ablation/{ablation}.yaml")] if ablation else []
    for stage in STAGES:
        trained = run(stage, *more)
        check(trained, stage)
    assert (
        "runs/vision_language-quickstart_pretrain-job1/checkpoints/best.ckpt"
        in (trained.folder / "train.log").read_text()
    )


def test_the_second_stage_trains_without_the_first(run):
    check(run("quickstart_sft", "--config", str(FOLDER / "ablation/no_pretrain.yaml")), "quickstart_sft")


def test_the_stages_differ_in_what_is_asked_and_how_long_alone():
    first, second = (flat(yaml.safe_load((REPOSITORY / FOLDER / f"{stage}.yaml").read_text())) for stage in STAGES)
    unequal = {key for key in first.keys() | second.keys() if first.get(key) != second.get(key)}
    differing = {"training_mix" if ".training_mix." in key else key.split(".")[-1] for key in unequal}
    assert differing <= {
        "init_from",
        "learning_rate",
        "warmup_steps",
        "caption_share",
        "training_mix",
        "unseen_wordings",
        "validation_size",
        "test_size",
        "max_epochs",
        "check_val_every_n_epoch",
        "monitor",
    }


LAID_OVER = [("quickstart_sft", path) for path in ABLATIONS]
LAID_OVER += [("quickstart_pretrain", path) for path in ABLATIONS if path.stem not in SECOND_ALONE]


@pytest.mark.parametrize(("stage", "path"), LAID_OVER, ids=lambda value: getattr(value, "stem", value))
def test_ablations_change_what_they_say(parser, stage, path):
    base = REPOSITORY / FOLDER / f"{stage}.yaml"
    output = flat(yaml.safe_load(path.read_text()))
    alone = flat(parser.parse_args(["--config", str(base)]).as_dict())
    chosen = parser.parse_args(["--config", str(base), "--config", str(path)])
    both = flat(chosen.as_dict())
    assert {key for key in both if both[key] != alone.get(key) and key != "config"} == set(output)
    assert all(both[key] == value for key, value in output.items())
    built = parser.instantiate(chosen)
    assert built.model.max_new_tokens
    assert built.data.num_workers >= 0


def flat(config, prefix=""):
    """{dotted key: value}"""
    found = {}
    for key, value in config.items():
        found |= flat(value, f"{prefix}{key}.") if isinstance(value, dict) and value else {prefix + key: value}
    return found
