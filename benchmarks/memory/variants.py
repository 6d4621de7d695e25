"""Measures the variants of the benchmark: settings of a training, each with predicted and measured memory."""

import os
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from benchmarks.memory_peak import peak, reset_peak
from benchmarks.variant_process import VariantProcess

_GIB = 2**30
_OWN_PAGES = {"MALLOC_MMAP_THRESHOLD_": str(1 << 17)}
"""Variables of the C library, which would otherwise keep freed tensors of up to 32 MB for later tensors."""
_STEPS = 2  # the optimizer's state exists from the first update
_SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}


class Size(NamedTuple):
    """Sizes of the model and of a step."""

    layers: int
    vocabulary: int
    tokens: int


class Setting(NamedTuple):
    """Settings of a training that its memory depends on."""

    precision: str
    model: dict[str, Any]
    ranks: int = 1
    """Ranks of FSDP2."""


SETTINGS = {
    "all weights, fp32": Setting("32-true", {"trainable": "full"}),
    "all weights, bf16-mixed": Setting("bf16-mixed", {"trainable": "full"}),
    "the same, activation checkpointing": Setting(
        "bf16-mixed", {"trainable": "full", "activation_checkpointing": True}
    ),
    "LoRA, bf16": Setting("bf16-mixed", {"trainable": "lora"}),
    "LoRA, NF4": Setting("bf16-mixed", {"trainable": "lora", "quantize": "nf4"}),
    "all weights, FSDP2 on 2 ranks": Setting(
        "bf16-mixed", {"trainable": "full", "activation_checkpointing": True}, ranks=2
    ),
}


def measure(size: Size, repeats: int) -> dict[str, Any]:
    """Return the predicted and the largest measured bytes of each setting."""
    variants = {}
    for name, setting in SETTINGS.items():
        measured = [_measured(name, setting, size) for _ in range(repeats)]
        predicted = _predicted(setting, size)
        variants[name] = {"predicted": predicted, "measured": max(measured), "all": measured}
    return {"name": "memory", **size._asdict(), "sides": variants}


def table(result: dict[str, Any]) -> Table:
    """Return the measurements as a table."""
    title = (
        f"a step of {result['tokens']} tokens, {result['layers']} layers of Qwen2.5-0.5B's widths, "
        f"{result['vocabulary']:,} tokens, on the CPU"
    )
    sheet = Table(box=box.SIMPLE_HEAD, title=title)
    for column in ("training", "predicted, GiB", "measured, GiB", "ratio"):
        sheet.add_column(column, justify="left" if column == "training" else "right")
    for name, variant in result["sides"].items():
        predicted, measured = variant["predicted"], variant["measured"]
        sheet.add_row(name, f"{predicted / _GIB:.2f}", f"{measured / _GIB:.2f}", f"{predicted / measured:.2f}")
    return sheet


def _measured(name: str, setting: Setting, size: Size) -> int:
    """Return the largest peak of the ranks."""
    with tempfile.TemporaryDirectory() as folder:
        meeting = Path(folder) / "ranks"
        os.environ |= _OWN_PAGES  # the processes inherit them
        # All started before any is awaited: the ranks of FSDP wait for each other.
        ranks = [
            VariantProcess(name, _train, setting, size, rank, meeting, daemon=True) for rank in range(setting.ranks)
        ]
        for variable in _OWN_PAGES:
            del os.environ[variable]
        return int(max(rank.receive() for rank in ranks))


def _settings(setting: Setting, size: Size) -> tuple[Any, Any]:
    from lightning_modules.multimodal.language.precision import precision_of
    from lightning_modules.multimodal.language.settings import LanguageModelSettings

    settings = LanguageModelSettings(config={**_SHAPE, "num_hidden_layers": size.layers}, **setting.model)
    return settings, precision_of(setting.precision, has_bf16=True)


def _predicted(setting: Setting, size: Size) -> int:
    from lightning_modules.multimodal.language.memory_estimate import estimate_memory
    from lightning_modules.multimodal.step_trace import Workload

    settings, precision = _settings(setting, size)
    return estimate_memory(settings, size.vocabulary, precision, Workload(size.tokens, shards=setting.ranks)).total


def _train(connection: Any, setting: Setting, size: Size, rank: int, meeting: Path) -> None:
    import warnings

    from torch import distributed

    warnings.simplefilter("ignore")
    if setting.ranks > 1:
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=setting.ranks)
    _steps(setting, Size(2, 64, 64))  # libraries and their buffers are not the model's memory
    connection.send(_steps(setting, size))
    if setting.ranks > 1:
        distributed.destroy_process_group()


def _steps(setting: Setting, size: Size) -> int:
    """Return the peak of two steps above the memory before the model was built."""
    import torch

    from engine.strategies.fsdp import gathered_formats, shard_layers
    from engine.system.host_memory import release_free_memory
    from lightning_modules.multimodal.language.language_model import LanguageModel

    class Loss(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            settings, precision = _settings(setting, size)
            self.language_model = LanguageModel(settings, size.vocabulary, precision)

        def forward(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
            model = self.language_model
            embeddings = model.embed(tokens)
            if not embeddings.requires_grad:  # the embeddings of the other modality are trained
                embeddings = embeddings.detach().requires_grad_()
            total, number = model.loss(model.hidden_states(embeddings, positions), tokens)
            return total / number

    release_free_memory()
    before = reset_peak()
    model = Loss()
    if setting.ranks > 1:
        from torch.distributed.device_mesh import init_device_mesh

        mesh = init_device_mesh("cpu", (setting.ranks,))
        shard_layers(model, mesh, mp_policy=gathered_formats(setting.precision == "bf16-mixed"))
    release_free_memory()
    reset_peak()  # weights are built whole, and may then be sharded or quantized
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
    row = torch.randint(size.vocabulary, (1, size.tokens), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(size.tokens).unsqueeze(0) % (size.tokens // 2)  # two packed chats
    for _ in range(_STEPS):
        loss = model(row, positions)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return peak() - before
