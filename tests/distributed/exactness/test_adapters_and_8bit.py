"""LoRA and the 8-bit optimizer: a killed run resumes bit-identically, and the exported model computes the same.

The frozen weights may be quantized, and then every rank has the same bits of them.
"""

import signal

import pytest
import torch
import yaml

from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER
from tests.support.families.tiny_documents import tiny_tokenizer, write_config
from tests.support.faults.step_faults import fault
from tests.tiers import slow

# Weights of 4,096 numbers have a state in 8 bits: adapters of rank 64 to layers of 64 inputs, the projector, the tower.
SIZES = {"hidden_size": 64, "intermediate_size": 96}


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A tiny pretrained Qwen2."""
    from transformers import AutoConfig, AutoModelForCausalLM

    folder, tokenizer = tmp_path_factory.mktemp("base"), tiny_tokenizer().tokenizer
    tokenizer.save_pretrained(folder)
    torch.manual_seed(5)
    config = AutoConfig.for_model(**{**LANGUAGE_MODEL, **SIZES}, vocab_size=len(tokenizer))
    AutoModelForCausalLM.from_config(config, dtype=torch.float32).save_pretrained(folder)
    return folder


@pytest.fixture
def options(base, tmp_path):
    """A run of 6 steps of two micro-batches, with dropout in the adapters."""
    lora = {"rank": 64, "alpha": 64, "dropout": 0.1}
    config = write_config(
        tmp_path,
        language_model={"path": str(base), "trainable": "lora", "lora": lora, "activation_checkpointing": True},
        vision_tower={"config": {**TOWER, **SIZES}, "trainable": "full"},
        optimizer="adamw_8bit",
        weight_decay=0.01,
    )
    data = {"tokenizer": str(base), "size": 24, "batch_size": 8, "micro_batch_size": 2, "evaluation_batch_size": 12}
    more = {
        "data": {"init_args": data},
        "trainer": {"max_steps": 6},
        "last_checkpoint": {"every_n_steps": 2},
        "replica_consistency": {"every_n_steps": 1},
    }
    (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
    return [*config, "--config", str(tmp_path / "more.yaml")]


def last(run):
    return torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)


def differing(first, second, name=""):
    """Names of what is not equal to the bit."""
    if isinstance(first, dict):
        assert first.keys() == second.keys(), name
        return [found for key in first for found in differing(first[key], second[key], f"{name}/{key}")]
    if isinstance(first, list):
        assert len(first) == len(second), name
        return [
            found
            for i, parts in enumerate(zip(first, second, strict=True))
            for found in differing(*parts, f"{name}/{i}")
        ]
    same = torch.equal(first, second) if isinstance(first, torch.Tensor) else first == second
    return [] if same else [name]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*is_gradient_checkpointing:FutureWarning")  # of plain peft
@pytest.mark.parametrize("processes, quantize", [(1, "nf4"), slow(2, "none")])
def test_a_killed_run_resumes_bit_identically(team, lockstep, options, base, tmp_path, processes, quantize):
    options = [*options, "--model.init_args.language_model.quantize", quantize]
    through = team("fit", *options, name="through", processes=processes)
    assert through.end(120) == [0] * processes, through.output
    assert "adamw_8bit: the state of " in through.output
    kill = fault("SignalAt", name="SIGKILL", step=5, process=processes - 1)
    killed = team("fit", *options, *kill, name="killed", processes=processes)
    assert killed.end(120)[-1] == -signal.SIGKILL, killed.output
    resumed = team("fit", *options, "--ckpt_path", "last", name="killed", processes=processes).succeeded(120)
    assert "resuming after step 4" in resumed.output

    undisturbed, again = last(through), last(resumed)
    assert undisturbed["global_step"] == again["global_step"] == 6
    for part in ("state_dict", "optimizer_states", "lr_schedulers"):
        assert differing(undisturbed[part], again[part]) == [], part
    assert through.series("train/loss") == resumed.series("train/loss")
    states = [tensor.dtype for tensor in tensors(again["optimizer_states"])]
    assert states.count(torch.uint8) >= 20
    assert torch.float32 in states
    adapted = [name for name in again["state_dict"] if name.startswith("language_model.")]
    assert adapted, "the frozen base is not in the file"
    assert all("lora_" in name for name in adapted), "the frozen base is not in the file"
    if processes == 2:
        check_exports(lockstep, resumed, options, base, tmp_path)


@pytest.mark.slow
def test_two_ranks_train_adapters_beside_quantized_weights_as_one(team, options):
    more = ["--model.init_args.language_model.quantize", "nf4", "--model.init_args.language_model.lora.dropout", "0"]
    more += ["--model.init_args.optimizer", "adamw", "--trainer.max_steps", "3"]
    runs = [team("fit", *options, *more, name=f"of{processes}", processes=processes) for processes in (1, 2)]
    assert [run.end(120) for run in runs] == [[0], [0, 0]], runs[1].output
    for metric, tolerance in {"train/loss": 1e-5, "train/gradient_norm": 1e-4}.items():
        values = [run.series(metric) for run in runs]
        assert len(values[0]) == 3
        assert values[1] == pytest.approx(values[0], rel=tolerance)
    one, second = (last(run)["frozen"] for run in runs)
    assert one == second
    assert any(name.endswith(".codes") for name in one)


@pytest.mark.slow
def test_the_8bit_state_in_cpu_memory_changes_no_bit_and_its_checkpoint_resumes_without(team, options):
    offload = ["--model.init_args.optimizer_offload", "true"]
    plain = team("fit", *options, "--trainer.max_steps", "4", name="plain", processes=2)
    assert plain.end(120) == [0, 0], plain.output
    first = team("fit", *options, *offload, "--trainer.max_steps", "2", name="offload", processes=2)
    assert first.end(120) == [0, 0], first.output
    second = team("fit", *options, "--trainer.max_steps", "4", "--ckpt_path", "last", name="offload", processes=2)
    assert second.end(120) == [0, 0], second.output
    one, other = last(plain), last(second)
    for part in ("state_dict", "optimizer_states"):
        assert differing(one[part], other[part]) == [], part
    assert plain.series("train/loss") == second.series("train/loss")


def tensors(content):
    if isinstance(content, torch.Tensor):
        return [content]
    inner = content.values() if isinstance(content, dict) else content if isinstance(content, (list, tuple)) else []
    return [tensor for value in inner for tensor in tensors(value)]


def logits(model, tokens):
    with torch.no_grad():
        return model.eval()(tokens).logits


def check_exports(lockstep, run, options, base, folder):
    """Exported adapters merged by plain peft equal the merged export, and differ from the base model."""
    from peft import PeftModel
    from safetensors.torch import load_file
    from transformers import AutoModelForCausalLM

    checkpoint = ["--ckpt_path", str(run.folder / "checkpoints/last.ckpt")]
    lockstep("export", *options, *checkpoint, "--output", str(folder / "apart"), name="exported")
    lockstep("export", *options, *checkpoint, "--output", str(folder / "merged"), "--merge", name="exported")
    tokens = torch.arange(3, 40).unsqueeze(0)
    plain = AutoModelForCausalLM.from_pretrained(base)
    before = logits(plain, tokens)
    adapted = PeftModel.from_pretrained(plain, folder / "apart")
    with_adapters = logits(adapted, tokens)
    assert (with_adapters - before).abs().max() > 1e-3
    torch.testing.assert_close(logits(adapted.merge_and_unload(), tokens), with_adapters, atol=1e-5, rtol=0)
    ours = logits(AutoModelForCausalLM.from_pretrained(folder / "merged"), tokens)
    torch.testing.assert_close(ours[..., : with_adapters.shape[-1]], with_adapters, atol=1e-5, rtol=0)
    saved = {name: tensor for name, tensor in last(run)["state_dict"].items() if "lora_" in name}
    exported = load_file(folder / "apart" / "adapter_model.safetensors")
    assert len(saved) == len(exported) == 2 * 7 * LANGUAGE_MODEL["num_hidden_layers"]
    assert all(any(torch.equal(tensor, other) for other in saved.values()) for tensor in exported.values())
