"""Tests adapters beside a quantized language model: training, bit-identical resume, small checkpoints."""

import pytest
import torch
import yaml

from lightning_modules.multimodal.language.quantization import quantize
from tests.support.families.tiny_temporal import TINY_TEMPORAL, write_qwen2
from tests.tiers import slow


@pytest.fixture(scope="module")
def options(tmp_path_factory):
    folder = tmp_path_factory.mktemp("qwen2")
    write_qwen2(folder)
    language_model = {"path": str(folder), "config": None, "trainable": "lora", "quantize": "nf4"}
    language_model["lora"] = {"rank": 4, "dropout": 0.1}
    overlay = folder / "overlay.yaml"
    model = {"init_args": {"language_model": language_model, "learning_rate": 0.01}}
    data = {"init_args": {"tokenizer": str(folder), "micro_batch_size": 8}}
    overlay.write_text(yaml.safe_dump({"model": model, "data": data, "trainer": {"max_epochs": -1}}))
    return [*TINY_TEMPORAL, "--config", str(overlay), "--replica_consistency.every_n_steps", "1"]


def steps(number):
    return ["--trainer.max_steps", str(number)]


@pytest.mark.parametrize("kind", ["nf4", slow("int8")])
def test_a_resumed_run_has_the_same_bits(lockstep, options, kind):
    options = [*options, "--model.init_args.language_model.quantize", kind]
    through = lockstep("fit", *options, *steps(4), name="through")
    lockstep("fit", *options, *steps(2), name="stopped")
    resumed = lockstep("fit", *options, *steps(4), "--ckpt_path", "last", name="stopped")
    assert resumed.series("train/loss") == through.series("train/loss")
    checkpoints = [torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True) for run in (through, resumed)]
    weights, again = (checkpoint["state_dict"] for checkpoint in checkpoints)
    assert weights.keys() == again.keys()
    assert all(torch.equal(weights[name], again[name]) for name in weights)
    assert all("lora_" in name for name in weights if name.startswith("language_model."))
    assert sum(name.endswith(".codes") for name in checkpoints[0]["frozen"]) == 2 * 7


@pytest.mark.slow
def test_a_stage_with_whole_weights_is_quantized_when_it_is_loaded(lockstep, options, tmp_path):
    whole = ["--model.init_args.language_model.quantize", "none", "--model.init_args.language_model.trainable", "full"]
    first = lockstep("fit", *options, *whole, *steps(1), name="first")
    second = lockstep("fit", *options, "--model.init_args.init_from", "runs/first", *steps(1), name="second")
    trained = torch.load(first.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    kept = torch.load(second.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    name = "layers.0.mlp.up_proj"
    (codes,) = (value for key, value in kept.items() if key.endswith(f"{name}.base_layer.codes"))
    (weight,) = (value for key, value in trained.items() if key.endswith(f"{name}.weight"))
    assert torch.equal(codes, quantize(weight, "nf4", double=True).codes)
    lockstep("fit", *options, *steps(2), "--ckpt_path", "last", name="second")
