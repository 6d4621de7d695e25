"""The configs for pretrained models run with smaller sizes, stage after stage."""

import json
import math
import shutil
from itertools import cycle
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
import yaml

from tests.conftest import REPOSITORY
from tests.support.data_files.vision_language_files import Sample, png, write_llava
from tests.support.families.colored_squares import COLORS, write_language_model, write_tower

FOLDER = REPOSITORY / "configs/vision_language"
STAGES = ("pretrain", "sft", "sft_lora", "one_stage")

# 70 samples, of which about 6 are held out: four steps of 16.
SMALL = [
    "--model.init_args.max_new_tokens=4",
    "--model.init_args.warmup_steps=1",
    "--data.init_args.batch_size=16",
    "--data.init_args.micro_batch_size=8",
    "--data.init_args.packed_length=128",
    "--data.init_args.max_length=128",
    "--data.init_args.num_workers=0",
    "--data.init_args.validation_share=0.1",
    "--trainer.max_steps=2",
    "--trainer.val_check_interval=2",
    "--trainer.num_sanity_val_steps=0",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A tower, a language model and a data set in LLaVA's form, all tiny."""
    folder = tmp_path_factory.mktemp("files")
    language_model, tower = folder / "language_model", folder / "tower"
    write_language_model(language_model)
    write_tower(tower)
    samples = []
    for number, (name, color) in zip(range(70), cycle(COLORS.items()), strict=False):
        seen = Sample([("user", "<image>\nwhat colours ?"), ("assistant", name)], [png(color)])
        samples.append(seen if number % 7 else Sample([("user", "what colours ?"), ("assistant", "none")]))
    data = write_llava(folder / "chats.json", samples)
    return SimpleNamespace(language_model=language_model, tower=tower, data=data)


@pytest.fixture
def run(lockstep, files, tmp_path):
    """Runs a config on the tiny files; nothing but sizes and paths is another."""
    folder = Path("configs/vision_language")
    shutil.copytree(FOLDER, tmp_path / folder)  # a later stage names the config of the earlier one
    where = [
        f"--model.init_args.language_model.path={files.language_model}",
        f"--model.init_args.vision_tower.path={files.tower}",
        f"--data.init_args.tokenizer={files.language_model}",
        "--data.init_args.train",
        json.dumps([{"path": str(files.data), "images": str(files.data.parent)}]),
    ]
    return lambda stem, *more: lockstep(
        "fit", "--config", str(folder / f"{stem}.yaml"), *SMALL, *where, *more, name=f"vision_language-{stem}-job1"
    )


def trained(run):
    """Beginnings of the names of the weights that the optimizer changes."""
    checkpoint = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)
    return {".".join(name.split(".")[:2]) for name in checkpoint["state_dict"]}, checkpoint


@pytest.mark.parametrize("stem", STAGES)
def test_models_and_data_are_named_as_they_are_published(stem):
    config = yaml.safe_load((FOLDER / f"{stem}.yaml").read_text())
    model, data = config["model"]["init_args"], config["data"]["init_args"]
    assert model["language_model"]["path"] == data["tokenizer"] == "Qwen/Qwen2.5-0.5B-Instruct"
    assert model["vision_tower"] == {
        "path": "google/siglip-base-patch16-224",
        "trainable": "none",
        "feature_layer": None,
    }


def test_each_stage_starts_from_the_newest_run_of_the_stage_before(run):
    """Projector alone; then with the language model or adapters to it, from the newest run of the first config."""
    first = run("pretrain")
    parts, checkpoint = trained(first)
    assert parts == {"projector.layers"}
    assert check(first, "pretrain") == "val/loss"
    for stem in ("sft", "sft_lora"):
        later = run(stem)
        parts, checkpoint = trained(later)
        assert parts == {"projector.layers", "language_model.network"}, stem
        adapters = ["lora_" in name for name in checkpoint["state_dict"] if name.startswith("language_model")]
        assert all(adapters) if stem == "sft_lora" else not any(adapters)
        check(later, stem)
        log = (later.folder / "train.log").read_text()
        assert "initialized 4 weights from runs/vision_language-pretrain-job1/checkpoints/best.ckpt" in log


def test_one_stage_trains_projector_and_language_model_at_their_rates(run):
    alone = run("one_stage")
    check(alone, "one_stage")
    parts, checkpoint = trained(alone)
    assert parts == {"projector.layers", "language_model.network"}
    groups = checkpoint["optimizer_states"][0]["param_groups"]
    peak = {group["name"].split("/")[0]: group["initial_lr"] for group in groups}
    assert peak == {"projector": 1e-3, "language_model": 2e-5}


def check(run, stem):
    losses = run.series("train/loss")
    assert sorted(losses) == [1, 2]
    assert all(map(math.isfinite, losses.values()))
    monitor = yaml.safe_load((FOLDER / f"{stem}.yaml").read_text())["best_checkpoint"]["monitor"]
    assert math.isfinite(run.series(monitor)[2])
    assert {file.name for file in (run.folder / "checkpoints").iterdir()} == {"best.ckpt", "last.ckpt"}
    return monitor
