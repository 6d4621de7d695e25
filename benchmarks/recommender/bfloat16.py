"""Checks whether the CPU has instructions for bfloat16, and measures how autocast to it changes the loss."""

from pathlib import Path

import numpy as np
import torch

from benchmarks.recommender.movielens_like import movielens_like
from benchmarks.recommender.training_steps import LENGTH_GROUPS, ModuleAlone, optimizer_step, train_sequences
from datamodules.recommender.length_groups import LengthGroups
from engine.data.samplers import MicroBatchRequest
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

_INSTRUCTIONS = ("avx512_bf16", "amx_bf16")


_STEPS = 30


def note() -> str:
    """Describe the CPU's support, and the loss after some steps with and without autocast."""
    exact, rough = (loss_after(_STEPS, bf16) for bf16 in (False, True))
    return (
        f"this CPU computes in bfloat16 itself: {', '.join(instructions()) or 'no'}; loss of step {_STEPS} "
        f"{exact:.4f} and {rough:.4f}, apart {abs(rough / exact - 1):.2%}"
    )


def instructions() -> list[str]:
    """Return Linux's names of the CPU's instructions for bfloat16 products; without them torch uses float32."""
    information = Path("/proc/cpuinfo")
    flags = information.read_text().split() if information.exists() else []
    return [name for name in _INSTRUCTIONS if name in flags]


def loss_after(steps: int, bf16: bool, num_users: int = 64, length: int = 50) -> float:
    """Return the loss after so many steps on a batch, without dropout, in float32 or under autocast."""
    rows = LengthGroups(train_sequences(movielens_like(num_users), length), LENGTH_GROUPS)
    batch = rows[MicroBatchRequest(0, np.arange(num_users))]
    # The same weights for both, so that the number format is the only difference.
    torch.manual_seed(1)
    module = ModuleAlone(SequenceEncoder(rows.rows.events.num_items, length, ArchitectureSettings(dropout=0.0)))
    step = optimizer_step(module, torch.autocast("cpu", torch.bfloat16, enabled=bf16)(module.batch_loss))
    return [step(batch) for _ in range(steps)][-1]
