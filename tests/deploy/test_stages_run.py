"""The launcher's stages, run: the shipped configs on a user's files, one stage after the other, up to the export."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import yaml

from commands.cli.main import main
from tests.conftest import REPOSITORY
from tests.support.data_files.vision_language_files import colored, write_llava
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.outputs.jsonl import read_jsonl

pytestmark = [
    pytest.mark.launcher,
    pytest.mark.skipif(shutil.which("bash") is None, reason="no bash"),
]


@pytest.fixture
def backbones(tmp_path):
    """A pretrained language model and vision tower of our own, as the configs name theirs."""
    import torch
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    from datamodules.multimodal.text.tokenizer import load_tokenizer

    torch.manual_seed(0)
    tokenizer = load_tokenizer(None, ["Which number is this? It is 0123456789."] * 3).tokenizer
    tokenizer.save_pretrained(tmp_path / "language")
    config = AutoConfig.for_model(**LANGUAGE_MODEL, vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path / "language")
    AutoModel.from_config(AutoConfig.for_model(**TOWER)).save_pretrained(tmp_path / "tower")
    return tmp_path


@pytest.mark.slow
def test_pretrain_sft_and_export(backbones, monkeypatch):
    """The stages run on two processes of a machine without a GPU."""
    folder = backbones
    write_llava(folder / "chats.json", [colored(number) for number in range(48)])
    overlay = {
        "model": {
            "init_args": {
                "language_model": {"path": str(folder / "language")},
                "vision_tower": {"path": str(folder / "tower")},
                "max_new_tokens": 4,
            }
        },
        "data": {
            "init_args": {
                "tokenizer": str(folder / "language"),
                "train": [{"path": "chats.json", "images": "."}],
                "batch_size": 8,
                "micro_batch_size": 4,
                "num_workers": 0,
                "validation_share": 0.2,
            }
        },
        "trainer": {"accelerator": "cpu", "precision": "32-true", "val_check_interval": 1.0, "log_every_n_steps": 1},
    }
    (folder / "mine.yaml").write_text(yaml.safe_dump(overlay))
    environment = {
        **os.environ,
        "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
        "LOCKSTEP_DEBUG": "1",
    }

    def train(stage, *options):
        script = str(REPOSITORY / "deploy/train_stage.sh")
        command = ["bash", script, "--stage", stage, "--config", "mine.yaml", *options]
        subprocess.run(command, cwd=folder, env=environment, check=True, timeout=170, stdin=subprocess.DEVNULL)

    train("pretrain", "--devices", "2", "--run_name", "first")
    train("sft", "--devices", "1", "--run_name", "second", "--model.init_args.init_from", "first")
    log = (folder / "runs/second/train.log").read_text()
    assert "initialized" in log
    assert "runs/first/checkpoints" in log
    lines = read_jsonl(folder / "runs/second/metrics.jsonl")
    assert any("train/loss" in line for line in lines)

    monkeypatch.chdir(folder)
    main(["export", "--run_name", "second", "--output", "exported"])
    config, processor = (
        json.loads((folder / f"exported/{name}.json").read_text()) for name in ("config", "processor_config")
    )
    assert config["architectures"] == ["LlavaForConditionalGeneration"]
    assert processor["image_processor"]["do_pad"], "the shipped configs pad images"
