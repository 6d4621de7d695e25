"""Measures the option `model.compile_step` of the recommenders: training steps with and without it, in bf16.

A step is the family's own loss, its gradients and AdamW, without the Trainer. On CUDA the compiled loss and its
gradients are CUDA graphs. The rows of the batch have no padding, which the compiled step alone would compute.
"""

from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial

import torch
from torch import Tensor

from benchmarks.device.histories import REALISTIC, TINY, Sizes, full_batch
from benchmarks.device.measures.kernel_activity import busy
from benchmarks.device.measures.reference import Variant, compared
from benchmarks.device.measures.timing import take_turns
from benchmarks.device.part import NEEDS_CUDA, Check, ResultTable, Row, Setting
from benchmarks.device.recommender import DROPOUT, MODELS, new_encoder, reference_of
from benchmarks.device.training_step import TrainingStep
from datamodules.recommender.batch import TrainBatch
from lightning_modules.recommender.compiled_step.compiled_loss import CompiledTrainingLoss
from lightning_modules.recommender.features.training_vectors import TrainingVectors
from lightning_modules.recommender.losses.next_item import NextItemLoss
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder
from lightning_modules.recommender.training_loss import TrainingLoss

PLAIN, COMPILED = "plain step", "compile_step true"


def measure(setting: Setting) -> Iterator[list[Check] | ResultTable]:
    """Measure a table per model."""
    sizes = TINY if setting.tiny else REALISTIC
    batch = full_batch(sizes, setting.device)
    for model, attention in MODELS.items():
        encoder = new_encoder(attention, sizes, setting.device)
        variants = [
            _variant(name, encoder, batch, setting.device) for name in (PLAIN, COMPILED)[: 1 + setting.compiled]
        ]
        checks, failures = compared(variants, reference_of(encoder, batch, setting.device))
        yield [check._replace(name=f"{model} {check.name}") for check in checks]
        yield _table(model, [variant for variant in variants if variant.name not in failures], failures, sizes, setting)
        torch.compiler.reset()  # torch limits how often it compiles the same function


def _variant(name: str, encoder: SequenceEncoder, batch: TrainBatch, device: str) -> Variant:
    network = deepcopy(encoder).train()
    parts = network, TrainingVectors(network, None, [], True, 0.0), NextItemLoss("cross_entropy", 0.0), True
    rows: Callable[[], int] = partial(len, batch.users)
    micro_batch = CompiledTrainingLoss(*parts, rows) if name == COMPILED else TrainingLoss(*parts)

    def loss() -> Tensor:
        found = micro_batch([batch], 0)
        return found.total / found.real

    return TrainingStep(network, loss, "bf16", device, has_dropout=True).variant(name)


def _table(
    model: str, variants: list[Variant], failures: dict[str, str], sizes: Sizes, setting: Setting
) -> ResultTable:
    """Return a table with ratios to the plain step, computed within a turn."""
    turns = take_turns({variant.name: variant.work for variant in variants}, setting.device, setting.repeats)
    rows = []
    for variant in variants:
        seconds = turns[variant.name]
        ratios: list[float] | str = ""
        if PLAIN in turns:
            ratios = [plain / each for plain, each in zip(turns[PLAIN], seconds, strict=True)]
        kernels = float(busy(variant.work).kernels) if setting.cuda else NEEDS_CUDA
        rates = [sizes.batch / each for each in seconds]
        rows.append(Row(variant.name, ([1e3 * each for each in seconds], ratios, rates, kernels)))
    return ResultTable(
        f"training step of {model} in bf16, B {sizes.batch}, L {sizes.length}, C {sizes.hidden_size}, 2 blocks, "
        f"{sizes.num_items} items, dropout {DROPOUT}",
        ("ms per step", "times the plain step", "sequences/s", "kernels"),
        rows,
        failures,
    )
