"""Measures training steps of the small recommenders SASRec and TiSASRec: kernel time and launch time.

Their kernels are short, so on a fast GPU the duration of a step may be the time that Python takes to launch them. The
table has the wall time of a step, the time with an active kernel, and the same step as a CUDA graph. The graph's loss
does not test for padding, for which the host would wait, and its optimizer counts steps on the GPU.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor, nn

from benchmarks.device.histories import REALISTIC, TINY, Sizes, full_batch
from benchmarks.device.measures.kernel_activity import busy
from benchmarks.device.measures.reference import Format, Outcome, Variant, compared, formats, gradients_of
from benchmarks.device.measures.timing import take_turns
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Row, Setting
from benchmarks.device.training_step import CapturedStep, TrainingStep
from benchmarks.recommender.naive_time_attention import with_naive_attention
from benchmarks.recommender.plain_sasrec import PlainSASRec
from datamodules.recommender.batch import TrainBatch
from lightning_modules.recommender.losses.linear_cross_entropy import linear_cross_entropy
from lightning_modules.recommender.losses.next_item import cross_entropy
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.attention.kinds import Attention
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

DROPOUT = 0.2
MODELS: dict[str, Attention] = {"SASRec": "standard", "TiSASRec": "time_interval"}
_GRAPHS: tuple[Format, ...] = ("fp32", "bf16")


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure a table per model, then the CUDA graphs, because a failed capture may break the CUDA context."""
    sizes = TINY if setting.tiny else REALISTIC
    batch = full_batch(sizes, setting.device)
    for graphs in (False, True) if setting.cuda else (False,):
        for model, attention in MODELS.items():
            encoder = new_encoder(attention, sizes, setting.device)
            variants, failures = _variants(encoder, batch, setting, graphs)
            checks, wrong = compared(variants, reference_of(encoder, batch, setting.device))
            failures |= wrong
            yield [check._replace(name=f"{model} {check.name}") for check in checks]
            yield _table(
                model, [variant for variant in variants if variant.name not in failures], failures, sizes, setting
            )


def new_encoder(attention: Attention, sizes: Sizes, device: str) -> SequenceEncoder:
    """Return a network with the same random weights in each call."""
    torch.manual_seed(1)
    settings = ArchitectureSettings(
        attention=attention, hidden_size=sizes.hidden_size, dropout=DROPOUT, time_span=sizes.time_span
    )
    return SequenceEncoder(sizes.num_items, sizes.length, settings).to(device)


def _variants(
    encoder: SequenceEncoder, batch: TrainBatch, setting: Setting, graphs: bool
) -> tuple[list[Variant], dict[str, str]]:
    """Return the variants that could be built, and the errors of the others."""
    makers: dict[str, Callable[[], TrainingStep | CapturedStep]] = {}
    for format in _GRAPHS if graphs else formats(setting.device):
        makers[f"eager {format}" + ", as in the graph" * graphs] = partial(
            _step, encoder, batch, format, setting.device, for_graph=graphs
        )
    if graphs:
        for format in _GRAPHS:
            makers[f"CUDA graph {format}"] = partial(_captured, encoder, batch, format, setting.device)
    elif setting.compiled:
        makers["compiled bf16"] = lambda: _step(encoder, batch, "bf16", setting.device, compiled=True)
    variants, failures = [], {}
    for name, make in makers.items():
        try:
            variants.append(make().variant(name))
        except Exception as error:  # noqa: BLE001 the other variants are measured anyway, and this is reported
            failures[name] = f"{type(error).__name__}: {error}"
    return variants, failures


def _step(
    encoder: SequenceEncoder,
    batch: TrainBatch,
    format: Format,
    device: str,
    compiled: bool = False,
    for_graph: bool = False,
) -> TrainingStep:
    # A copy, so that every variant starts with the same weights and trains its own.
    network = deepcopy(encoder).train()
    weight = network.items.weight
    if compiled:
        network.compile()

    def loss() -> Tensor:
        states = network(batch.history)
        if for_graph:  # the project's loss tests for padding, which a graph cannot; these rows have none
            total = linear_cross_entropy(states.flatten(0, 1), weight[1:], batch.targets.flatten() - 1)
        else:
            total = cross_entropy(states, weight[1:], batch.targets)
        return total / batch.targets.numel()

    return TrainingStep(network, loss, format, device, has_dropout=True, capturable=for_graph)


def _captured(encoder: SequenceEncoder, batch: TrainBatch, format: Format, device: str) -> CapturedStep:
    return CapturedStep(_step(encoder, batch, format, device, for_graph=True))


def reference_of(encoder: SequenceEncoder, batch: TrainBatch, device: str) -> Outcome:
    """Return the plain implementations of both models in float64."""
    exact = deepcopy(encoder).double()
    weights = list(exact.parameters())  # the plain implementations have the same order of parameters but other names
    network: nn.Module = PlainSASRec(exact) if exact.positions is not None else with_naive_attention(exact)

    def loss() -> Tensor:
        if isinstance(network, PlainSASRec):
            return network.loss(batch.history.items, batch.targets)
        scores = network(batch.history) @ exact.items.weight[1:].T
        return nn.functional.cross_entropy(scores.flatten(0, 1), batch.targets.flatten() - 1)

    step = TrainingStep(network.eval(), loss, "fp32", device)
    return Outcome(step.differentiate(), gradients_of(weights))


def _table(
    model: str, variants: list[Variant], failures: dict[str, str], sizes: Sizes, setting: Setting
) -> ResultTable:
    turns = take_turns({variant.name: variant.work for variant in variants}, setting.device, setting.repeats)
    rows = []
    for variant in variants:
        seconds = turns[variant.name]
        working: tuple[list[float] | float | str, ...] = (NEEDS_CUDA, "", "")
        if setting.cuda:
            found = busy(variant.work)
            working = (1e3 * found.seconds, [min(1.0, found.seconds / each) for each in seconds], found.kernels)
        milliseconds, rate = [1e3 * each for each in seconds], [sizes.batch / each for each in seconds]
        rows.append(Row(variant.name, (milliseconds, rate, *working)))
    if not setting.cuda:
        # Rows without numbers, so that a table of a CPU shows what it lacks.
        rows += [Row(name, (NEEDS_CUDA, "", "", "", "")) for name in ("eager tf32", "eager fp16", "CUDA graph")]
    return ResultTable(
        f"training step of {model}, B {sizes.batch}, L {sizes.length}, C {sizes.hidden_size}, 2 blocks, "
        f"{sizes.num_items} items, dropout {DROPOUT}",
        ("ms per step", "sequences/s", "ms of it GPU at work", "share", "kernels"),
        rows,
        failures,
    )
