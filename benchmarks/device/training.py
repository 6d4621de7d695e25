"""A vision-language model of the sizes of SigLIP-B/16 and Qwen2.5-0.5B in the Trainer, beside a plain torch loop.

Both train the same packed rows in bf16, with loaders, random weights and a frozen tower; each is a process of its own.
Times are by the wall's clock, from step to step, with all that a training does.
"""

from collections.abc import Iterator
from functools import partial

import torch
from torch import nn

from benchmarks.device.part import Check, Row, Setting, Sheet
from benchmarks.device.peaks import peak
from benchmarks.device.reference import Outcome, Side, compared
from benchmarks.engine.turns import Body, Turn, take_turns
from benchmarks.vision_language.models import LARGE, TINY, Layout, Sizes, amounts_of_turns, built
from benchmarks.vision_language.plain_llava import PlainLlava
from benchmarks.vision_language.trainings import ours, plain

_STEPS, _WARM_UP, _WORKERS = 10, 5, 4
_TINY_STEPS = 2
_PACKED = Layout(packed=True)


def figures(setting: Setting) -> Iterator[list[Check] | Sheet]:
    """A sheet as it is written, and one with torch.compile."""
    checks, failures = _compared(setting.device)
    if failures:
        raise RuntimeError(f"the model could not be compared: {failures}")
    yield checks
    sizes, steps = (TINY, _TINY_STEPS) if setting.tiny else (LARGE, _STEPS)
    amounts = amounts_of_turns(sizes, _PACKED, setting.repeats, steps, _WARM_UP)
    # In pairs: the plain loop's scores of all tokens leave no room on the device for more.
    for compiled in (False, True) if setting.compiled else (False,):
        pair = _pair(sizes, compiled, _WORKERS if setting.cuda else 0)
        turns = take_turns(
            pair, processes=dict.fromkeys(pair, 1), steps=steps, repeats=setting.repeats, warm_up=_WARM_UP
        )
        yield _sheet(turns, amounts, steps, setting)


def _sheet(turns: dict[str, list[Turn]], amounts: list[dict[str, float]], steps: int, setting: Setting) -> Sheet:
    """Ratios are to the first side, turn by turn."""
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
    return Sheet(title, ("tokens/s", "times the plain loop", "TFLOP/s", "MFU"), rows)


def _pair(sizes: Sizes, compiled: bool, workers: int) -> dict[str, Body]:
    same = {"sizes": sizes, "layout": _PACKED, "compiled": compiled, "workers": workers}
    suffix = ", compiled" * compiled
    return {
        "plain torch loop" + suffix: partial(plain, **same),
        "Lockstep" + suffix: partial(ours, precision="bf16-mixed", **same),
    }


def _compared(device: str) -> tuple[list[Check], dict[str, str]]:
    """Our loss and gradients in fp32, tiny, beside those of the plain model in float64 with our weights in it."""
    from lightning.fabric.utilities import move_data_to_device

    module, data = built(TINY, _PACKED)
    ((examples,),) = [next(iter(data.train_dataloader()))]
    model = PlainLlava(TINY, data.tokenizer.vocabulary_size, data.tokenizer.placeholder)
    model.language_model.load_state_dict(module.language_model.network.state_dict())
    model.tower.load_state_dict(module.encoder.network.state_dict())
    linear = [part for part in module.projector.modules() if isinstance(part, nn.Linear)]
    for theirs, own in zip((model.projector[0], model.projector[2]), linear, strict=True):
        theirs.load_state_dict(own.state_dict())
    module.to(device)
    model.to(device, torch.float64)
    examples = move_data_to_device(examples, torch.device(device))
    tokens, labels, positions = examples.rows[:3]

    exact = model(tokens, labels, examples.modality.pixels, positions)["loss"]
    exact.backward()

    def outcome() -> Outcome:
        found = module.training_loss((examples,))
        loss = found.total / found.count
        loss.backward()
        trained = [*module.language_model.network.parameters(), *module.projector.parameters()]
        return Outcome(loss.detach(), [weight.grad for weight in trained])

    trained = [*model.language_model.parameters(), *model.projector.parameters()]
    reference = Outcome(exact.detach(), [weight.grad for weight in trained])
    return compared([Side("loss of packed rows in fp32", "fp32", outcome, outcome)], reference)
