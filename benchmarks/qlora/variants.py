"""Measures the variants of the benchmark: a language model of a shape, with LoRA beside weights of one format."""

import time
from contextlib import ExitStack
from statistics import median
from typing import Any

from rich import box
from rich.table import Table

from benchmarks.memory_peak import peak, reset_peak
from benchmarks.turn_order import turn_order
from benchmarks.variant_process import VariantProcess

FORMATS = {"bf16": "none", "nf4": "nf4", "int8": "int8"}
_VOCABULARY = 151_936
_SHAPE = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
_GIB = 2**30


def measure(layers: int, tokens: int, repeats: int) -> dict[str, Any]:
    """Return seconds and memory of each variant, in alternating turns, after one turn to warm up."""
    with ExitStack() as stack:
        processes, variants = {}, {}
        for name, quantize in FORMATS.items():
            processes[name] = stack.enter_context(VariantProcess(name, _variant, quantize, layers, tokens))
            variants[name] = processes[name].receive() | {"seconds": [], "cpu_seconds": [], "step": 0}
        # The first turn warms up: the optimizer allocates its state in it.
        for turn in range(repeats + 1):
            for name in turn_order(FORMATS, turn):
                processes[name].connection.send("step")
                seconds, cpu, memory = processes[name].receive()
                if turn:
                    variants[name]["seconds"].append(seconds)
                    variants[name]["cpu_seconds"].append(cpu)
                    variants[name]["step"] = max(variants[name]["step"], memory)
    return {"name": "qlora", "layers": layers, "tokens": tokens, "sides": variants}


def table(result: dict[str, Any]) -> Table:
    """Return the measurements as a table."""
    layers, tokens = result["layers"], result["tokens"]
    sheet = Table(
        box=box.SIMPLE_HEAD, title=f"LoRA, {layers} layers of Qwen2.5-0.5B's shape, {tokens} tokens a step, on the CPU"
    )
    for column in ("frozen weights", "tokens/s", "CPU s a step", "model GiB", "step's peak GiB", "predicted", "error"):
        sheet.add_column(column, justify="left" if column == "frozen weights" else "right")
    for name, variant in result["sides"].items():
        seconds, predicted = variant["seconds"], variant["predicted"]
        # The slowest step gives the smallest rate.
        rates = [tokens / median(seconds), tokens / max(seconds), tokens / min(seconds)]
        sheet.add_row(
            name,
            "{:.1f} ({:.1f} - {:.1f})".format(*rates),
            f"{median(variant['cpu_seconds']):.1f}",
            f"{variant['model'] / _GIB:.2f}",
            f"{variant['step'] / _GIB:.2f}",
            f"{predicted / _GIB:.2f}",
            f"{predicted / variant['step'] - 1:+.0%}",
        )
    return sheet


def _variant(connection: Any, quantize: str, layers: int, tokens: int) -> None:
    import warnings

    import torch

    from lightning_modules.multimodal.language.language_model import LanguageModel
    from lightning_modules.multimodal.language.memory_estimate import estimate_memory
    from lightning_modules.multimodal.language.precision import precision_of
    from lightning_modules.multimodal.language.settings import LanguageModelSettings
    from lightning_modules.multimodal.step_trace import Workload

    warnings.simplefilter("ignore")
    settings: Any = {"trainable": "lora", "quantize": quantize, "activation_checkpointing": True}
    chosen = LanguageModelSettings(config={**_SHAPE, "num_hidden_layers": layers}, **settings)
    precision = precision_of("bf16-mixed", has_bf16=True)
    # Its imports are not the model's memory.
    predicted = estimate_memory(chosen, _VOCABULARY, precision, Workload(tokens)).total
    before = reset_peak()
    # The model's peak is read after it is built, and reset, so that the step's peak is its own.
    model = LanguageModel(chosen, _VOCABULARY, precision)
    optimizer = torch.optim.AdamW([parameter for parameter in model.parameters() if parameter.requires_grad])
    connection.send("ready")
    connection.send({"model": reset_peak() - before, "predicted": predicted})
    row = torch.randint(_VOCABULARY, (1, tokens), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(tokens).unsqueeze(0)
    while True:
        try:
            connection.recv()
        except EOFError:
            return
        reset_peak()
        began, cpu = time.perf_counter(), time.process_time()
        total, number = model.loss(model.hidden_states(model.embed(row), positions), row)
        (total / number).backward()
        optimizer.step()
        optimizer.zero_grad()
        connection.send((time.perf_counter() - began, time.process_time() - cpu, peak() - before))
