"""Measures a model of the sizes of SigLIP-B/16 and Qwen2.5-0.5B in the Trainer, beside a plain torch loop.

Both train the same packed rows in bf16, with loaders, random weights and a frozen tower, each in its own process.
Lockstep's variant is the family's module without the guards of a run. Times are wall times from step to step and
include everything that a training does. Only the batches that the loaders hold ready, 8 of a turn's 40, were prepared
while the other variant trained. The same code in tiny sizes is compared with float64: as it is measured, and Lockstep's
in fp32.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.device.measures.peaks import peak
from benchmarks.device.measures.reference import Format, Outcome, Variant, autocast, compared, gradients_of
from benchmarks.device.part import Check, ResultTable, Row, Setting
from benchmarks.device.rates import WHOLE_ROWS
from benchmarks.engine.interleaving import Body, Measurement, take_turns
from benchmarks.vision_language.models import LARGE, TINY, Layout, Sizes, amounts_of_turns, built
from benchmarks.vision_language.plain_llava import PlainLlava
from benchmarks.vision_language.trainings import compile_parts, ours, plain
from datamodules.multimodal.batch import ChatTrainBatch
from lightning_modules.vision_language.module import VisionLanguageModel

_STEPS, _WARM_UP, _WORKERS = 40, 5, 4
_TINY_STEPS = 2
_PACKED = Layout(packed=True)
_PLAIN, _OURS = "plain torch loop", "Lockstep's module in the Trainer"


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure a table without and a table with torch.compile."""
    sizes, steps = (TINY, _TINY_STEPS) if setting.tiny else (LARGE, _STEPS)
    amounts = amounts_of_turns(sizes, _PACKED, setting.repeats, steps, _WARM_UP)
    # The variants are compared in pairs, because the plain loop's scores of all tokens fill the device.
    for compiled in (False, True) if setting.compiled else (False,):
        checks, failures = _compared(setting.device, compiled)
        if failures:
            raise RuntimeError(f"the model could not be compared: {failures}")
        yield checks
        pair = _pair(sizes, compiled, _WORKERS if setting.cuda else 0)
        turns = take_turns(
            pair, processes=dict.fromkeys(pair, 1), steps=steps, repeats=setting.repeats, warm_up=_WARM_UP
        )
        yield _table(turns, amounts, steps, setting)


def _table(
    turns: dict[str, list[Measurement]], amounts: list[dict[str, float]], steps: int, setting: Setting
) -> ResultTable:
    """Return a table with ratios to the first variant, computed within a turn."""
    seconds = {name: [turn.wall * steps for turn in measured] for name, measured in turns.items()}
    first, best, rows = next(iter(seconds.values())), peak(setting, "bf16"), []
    for name, own in seconds.items():
        rates = [held["flops"] / each for held, each in zip(amounts, own, strict=True)]
        cells = (
            [held["tokens"] / each for held, each in zip(amounts, own, strict=True)],
            [base / each for base, each in zip(first, own, strict=True)],
            [rate / 1e12 for rate in rates],
            [rate / best for rate in rates] if best else "peak not known",
        )
        rows.append(Row(name, cells))
    real = sum(held["tokens"] for held in amounts) / sum(held["positions"] for held in amounts)
    title = f"training of a vision-language model, bf16, rows with {real:.0%} real tokens"
    return ResultTable(title, ("tokens/s", "times the plain loop", "TFLOP/s", "MFU"), rows, note=WHOLE_ROWS)


def _pair(sizes: Sizes, compiled: bool, workers: int) -> dict[str, Body]:
    suffix = ", compiled" * compiled
    return {
        _PLAIN + suffix: partial(plain, sizes=sizes, layout=_PACKED, compiled=compiled, workers=workers),
        _OURS + suffix: partial(
            ours, sizes=sizes, layout=_PACKED, precision="bf16-mixed", compiled=compiled, workers=workers
        ),
    }


def _compared(device: str, compiled: bool) -> tuple[list[Check], dict[str, str]]:
    """Compare loss and gradients of both variants in tiny sizes with the plain model in float64."""
    from lightning.fabric.utilities import move_data_to_device

    # Tiny sizes: float64 of the real ones would not fit the device.
    module, data = built(TINY, _PACKED)
    # One batch of one part
    ((batch,),) = [next(iter(data.train_dataloader()))]
    model = PlainLlava(TINY, data.tokenizer.vocabulary_size, data.tokenizer.placeholder)
    model.language_model.load_state_dict(module.language_model.network.state_dict())
    model.tower.load_state_dict(module.get_submodule("encoder.network").state_dict())
    linear = [part for part in module.projector.modules() if isinstance(part, nn.Linear)]
    for theirs, own in zip((model.projector[0], model.projector[2]), linear, strict=True):
        theirs.load_state_dict(own.state_dict())
    mixed, _ = built(TINY, _PACKED, precision="bf16-mixed", compiled=compiled)
    mixed.load_state_dict(module.state_dict())
    for network in (module, mixed, model):
        network.to(device)
    batch = move_data_to_device(batch, torch.device(device))

    reference = _of_plain(deepcopy(model).double(), batch, "fp32", device)
    if compiled:
        compile_parts(model)
    suffix = ", compiled" * compiled
    outcomes: dict[str, tuple[Format, Callable[[], Outcome]]] = {
        f"{_PLAIN} in bf16{suffix}": ("bf16", lambda: _of_plain(model, batch, "bf16", device)),
        f"{_OURS} in bf16{suffix}": ("bf16", lambda: _of_ours(mixed, batch, "bf16", device)),
    }
    if not compiled:
        outcomes[f"{_OURS} in fp32"] = ("fp32", lambda: _of_ours(module, batch, "fp32", device))
    variants = [Variant(name, format, outcome, outcome) for name, (format, outcome) in outcomes.items()]
    return compared(variants, reference)


def _of_plain(model: PlainLlava, batch: ChatTrainBatch, format: Format, device: str) -> Outcome:
    tokens, labels, positions = batch.rows[:3]
    with autocast(format, device):
        loss = model(tokens, labels, batch.encoder_input.pixels, positions)["loss"]
    return _differentiated(loss, model.language_model, model.projector)


def _of_ours(module: VisionLanguageModel, batch: ChatTrainBatch, format: Format, device: str) -> Outcome:
    with autocast(format, device):
        found = module.training_loss((batch,))
        loss = found.total / found.terms
    return _differentiated(loss, module.language_model.network, module.projector)


def _differentiated(loss: Tensor, *trained: nn.Module) -> Outcome:
    loss.backward()
    return Outcome(loss.detach(), gradients_of(weight for part in trained for weight in part.parameters()))
