"""`train.py export`: from a run to a directory that plain transformers and peft load."""

import json

import pytest
import torch
import yaml
from safetensors.torch import load_file

from commands.cli import main
from tests.conftest import TINY
from tests.temporal import TINY_TEMPORAL, write_qwen2


@pytest.fixture
def adapted(lockstep, tmp_path):
    """A run that has trained adapters to a Qwen2 from a directory; the options of its command, and the directory."""
    base = tmp_path / "qwen2"
    write_qwen2(base)
    language_model = {"path": str(base), "config": None, "trainable": "lora"}
    model = {"language_model": language_model, "learning_rate": 0.05}
    overlay = {"model": {"init_args": model}, "data": {"init_args": {"tokenizer": str(base)}}}
    (tmp_path / "overlay.yaml").write_text(yaml.safe_dump(overlay))
    options = [*TINY_TEMPORAL, "--config", str(tmp_path / "overlay.yaml"), "--trainer.max_epochs", "2"]
    return lockstep("fit", *options, name="adapted"), base


def logits(model):
    with torch.no_grad():
        return model.eval()(torch.arange(3, 20).unsqueeze(0)).logits


@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of plain peft
def test_adapters_alone_and_merged_compute_the_same(lockstep, adapted, tmp_path):
    """And neither is written over what is there, nor from a checkpoint that belongs to another base."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    run, base = adapted
    alone, merged = tmp_path / "out" / "adapter", tmp_path / "out" / "merged"
    lockstep("export", "--output", str(alone), name="adapted")
    lockstep("export", "--output", str(merged), "--merge", name="adapted")
    before = logits(AutoModelForCausalLM.from_pretrained(base))
    with_adapters = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), alone)
    whole = AutoModelForCausalLM.from_pretrained(merged)
    known = with_adapters.config.vocab_size  # transformers' class for a Qwen2's tokenizer adds a token of its own
    torch.testing.assert_close(logits(whole)[..., :known], logits(with_adapters), atol=1e-5, rtol=0)
    assert (logits(with_adapters) - before).abs().max() > 1e-3

    saved = torch.load(run.folder / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    for part in ("encoder", "projector"):
        weights = load_file(alone / "modality" / f"{part}.safetensors")
        assert weights and all(torch.equal(saved[f"{part}.{name}"], value) for name, value in weights.items())
    settings = json.loads((alone / "modality" / "settings.json").read_text())
    assert settings["language_model"]["name"] == str(base) and settings["encoder"]["class"] == "SeriesEncoder"

    with pytest.raises(FileExistsError, match="adapter is there already"):
        lockstep("export", "--output", str(alone), name="adapted")
    changed = bytearray((base / "model.safetensors").read_bytes())
    changed[-1] ^= 1
    (base / "model.safetensors").write_bytes(changed)
    with pytest.raises(ValueError, match=f"trained on the language model {base}, .*differ: weights"):
        lockstep("export", "--output", str(tmp_path / "out" / "other"), name="adapted")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {"adapter", "merged"}


def test_families_without_an_export_say_so(done, lockstep, tmp_path):
    with pytest.raises(ValueError, match="export: SequentialRecommender has no other form than its checkpoints"):
        lockstep("export", "--output", str(tmp_path / "out"), name=done.folder.name)


def test_the_output_must_be_named(capsys):
    with pytest.raises(SystemExit) as end:
        main(["export", *TINY])
    assert end.value.code == 2 and "output" in capsys.readouterr().err
