"""Predicts the memory of each recipe for a model and a cluster, and recommends the first recipe that fits."""

from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from commands.doctor.model_plan.cluster import Cluster
from commands.doctor.model_plan.qwen2_5_shapes import QWEN2_5
from commands.doctor.model_plan.recipes import RECIPES, Recipe
from commands.doctor.training.memory_prediction import DEFAULT_TOKENS, USABLE_SHARE
from engine.optim.optimizers import OPTIMIZERS
from lightning_modules.multimodal.language.memory_estimate import estimate_memory
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings, Trainable
from lightning_modules.multimodal.step_trace import MemoryEstimate, Workload


class Candidate(NamedTuple):
    """A language model whose memory is predicted, with the length of its training samples in tokens."""

    name: str
    settings: LanguageModelSettings
    vocabulary: int
    tokens: int = DEFAULT_TOKENS
    trainable: Trainable | None = None
    """What the config trains; recipes that train the same are recommended first."""


class Row(NamedTuple):
    """Predicted memory of a recipe."""

    recipe: Recipe
    size: int
    """Bytes of a GPU at the peak of a step."""
    host: int
    """Bytes of a node's host memory that shards take."""
    fits: bool
    recommended: bool = False


def shipped_candidates() -> list[Candidate]:
    """Return the models of the Qwen2.5 series."""
    return [
        Candidate(name, LanguageModelSettings(config=shape.config()), shape.vocabulary)
        for name, shape in QWEN2_5.items()
    ]


def plan_rows(candidate: Candidate, cluster: Cluster) -> list[Row]:
    """Return the recipes for a model on a cluster, at most one of them recommended.

    Raises:
        ValueError: the model cannot be built from its config.
    """
    rows = list(_rows(candidate, cluster))
    fitting = [row for row in rows if row.fits]
    fitting_row = next((row for row in fitting if row.recipe.trainable == candidate.trainable), None)
    fitting_row = fitting_row or next(iter(fitting), None)
    return [row._replace(recommended=row is fitting_row) for row in rows]


def _rows(candidate: Candidate, cluster: Cluster) -> Iterator[Row]:
    sharded = None
    for recipe in RECIPES:
        if recipe.is_sharded and cluster.ranks == 1:
            continue
        estimate = _estimate(candidate, cluster, recipe)
        size = estimate.total
        if not recipe.is_sharded and cluster.ranks > 1:
            size += estimate.gradients  # the buckets of DDP
        host = 0
        if recipe.cpu_offload and sharded is not None:
            # With CPU offload, the shards of all GPUs of a node are in its host memory.
            host = cluster.gpus * (sharded.weights + sharded.gradients + sharded.optimizer)
        if recipe.is_sharded:
            sharded = estimate
        yield Row(recipe, size, host, size <= USABLE_SHARE * cluster.gb * 10**9)


def _estimate(candidate: Candidate, cluster: Cluster, recipe: Recipe) -> MemoryEstimate:
    settings = replace(
        candidate.settings,
        trainable=recipe.trainable,
        quantize=recipe.quantize or "none",
        activation_checkpointing=True,
    )
    optimizer = OPTIMIZERS[recipe.optimizer]
    work = Workload(
        candidate.tokens,
        state_bytes=optimizer.state_bytes,
        in_blocks=optimizer.in_blocks,
        shards=cluster.ranks if recipe.is_sharded else 1,
        cpu_offload=recipe.cpu_offload,
        foreach=True,
    )
    return estimate_memory(settings, candidate.vocabulary, precision_of("bf16-mixed", has_bf16=True), work)
