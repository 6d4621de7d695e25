"""Sequence encoders of every variant at their smallest, and histories for them."""

import pytest
import torch

from datamodules.recommender.batch import History
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from lightning_modules.recommender.networks.sequence_encoder import SequenceEncoder

V, LONGEST = 13, 10
LOG = {"attention": "time_interval", "time_buckets": "log"}
GRU = {"attention": "gru", "feed_forward": "none", "num_heads": 1}
VARIANTS = (
    [
        pytest.param({"attention": attention, "residual": residual, "norm": norm}, id=f"{attention}-{residual}-{norm}")
        for attention in ("standard", "time_interval")
        for residual in ("plain", "mhc")
        for norm in ("pre", "post")
    ]
    + [
        pytest.param(
            {"attention": attention, "residual": residual, "norm": norm, "feed_forward": feed_forward},
            id=f"{attention}-{residual}-{norm}-{feed_forward}",
        )
        for attention, residual, norm, feed_forward in (
            ("standard", "gated", "pre", "swiglu"),
            ("standard", "gated_mhc", "post", "swiglu"),
            ("time_interval", "gated", "post", "swiglu"),
            ("time_interval", "gated_mhc", "pre", "swiglu"),
            ("hstu", "plain", "pre", "none"),
            ("hstu", "mhc", "post", "none"),
            ("hstu", "gated_mhc", "pre", "swiglu"),
            ("fuxi", "plain", "pre", "swiglu"),
            ("fuxi", "mhc", "post", "none"),
        )
    ]
    + [pytest.param(LOG, id="time_interval-log"), pytest.param(GRU, id="gru")]
)


def make_history(lengths=(4, 7, 1, 0), padded_to=7, seed=0):
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.tensor(lengths)
    real = torch.arange(padded_to) < lengths.unsqueeze(1)
    items = torch.randint(1, V + 1, real.shape, generator=generator) * real
    times = torch.randint(0, 50, real.shape, generator=generator).cumsum(1)
    last = times.gather(1, (lengths - 1).clamp_min(0).unsqueeze(1))
    at = last.squeeze(1) + torch.randint(0, 50, lengths.shape, generator=generator)
    return History(items, torch.where(real, times, last), lengths, torch.tensor([1, 7, 3, 1])[: len(lengths)], at)


def make_encoder(**changes):
    torch.manual_seed(0)
    return SequenceEncoder(V, LONGEST, ArchitectureSettings(**{"hidden_size": 8, "num_heads": 2, **changes}))
