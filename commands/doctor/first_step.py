"""The first step of a training, tried: with the config's micro-batch, or with the largest that fits, as fit does."""

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import torch

from callbacks.memory_room import give_back
from commands.doctor.finding import Finding
from commands.doctor.micro_batch import before_training, broken, computed
from commands.doctor.settings import made, of_one_micro_batch, shards
from commands.doctor.trial import BeforeTraining, Tried, tried
from engine.batch_plan import BatchPlan
from engine.out_of_memory import is_out_of_memory

if TYPE_CHECKING:
    from jsonargparse import Namespace


class Outcome(NamedTuple):
    """What came of it."""

    findings: list[Finding]
    batch: BatchPlan  # that was tried last
    tried: Tried | None = None


def first_step(config: "Namespace", batch: BatchPlan, beside: int, prepare: str, folder: Path) -> Outcome:
    """
    Args:
        batch: of the config; `trainer.auto_micro_batch` halves its micro-batch until it fits, and so does this.
        beside: processes of a node.
        prepare: the command that makes the data ready.
        folder: for what the model writes; nobody needs it afterwards.
    """
    asked, found = batch.micro_batch_size, None
    while found is None:
        outcome = _once(config, batch, beside, prepare, folder)
        if isinstance(outcome, Finding):
            return Outcome([outcome], batch)
        give_back(torch.device("cuda" if torch.cuda.is_initialized() else "cpu"))
        if isinstance(outcome, BatchPlan):
            batch = outcome
        else:
            found = outcome
    findings = [Finding("data", "ok", f"{found.samples:,} samples to train on")] if found.samples is not None else []
    why = "the program warned of it in its first steps"
    findings += [Finding("micro batch", "warn", words, why, "see docs/") for words in found.warnings]
    return Outcome([*findings, computed(found, batch, beside, asked)], batch, found)


def _once(
    config: "Namespace", batch: BatchPlan, beside: int, prepare: str, folder: Path
) -> "Tried | BatchPlan | Finding":
    """What a step takes, the smaller batch that is to be tried next, or what is wrong."""
    alone = of_one_micro_batch(config, batch.micro_batch_size)
    model, data = made(alone, "model"), made(alone, "data")
    auto = config.trainer.auto_micro_batch
    divides = model.splits_batches and not shards(config.trainer.strategy)
    if auto is True and not divides:
        words = "trainer.auto_micro_batch true: weights in shards, or a loss of the whole batch, leave nothing to find"
        why = "the training ends before it begins"
        return Finding("micro batch", "fail", words, why, "--trainer.auto_micro_batch if_possible")
    seed, trainable_only = int(config.seed_everything), config.checkpoints.trainable_only
    try:
        return tried(model, data, alone.trainer, seed, trainable_only, beside, folder)
    except BeforeTraining as error:
        return before_training(error, prepare)
    except Exception as error:
        smaller = batch.halved() if auto and divides else None
        if smaller is not None and is_out_of_memory(error):
            return smaller
        savers = [option for option, _ in model.memory_savers()]
        return broken(error, batch.micro_batch_size, beside, model.splits_batches, savers)
