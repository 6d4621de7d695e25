"""Tests that settings which a compiled step cannot have are refused before the training."""

from types import SimpleNamespace

import pytest
import torch

from engine.strategies.fsdp import VerifiedFSDPStrategy
from lightning_modules.recommender.compiled_step import compile_checks
from lightning_modules.recommender.compiled_step.compile_checks import check_compiled_step, check_compiler
from lightning_modules.recommender.networks.architecture import ArchitectureSettings
from tests.conftest import TINY


def check(architecture=None, kernel="torch", item_optimizer="dense", features=None, negatives="", strategy=None):
    data = SimpleNamespace(item_features=features, other_negatives=negatives)
    check_compiled_step(
        ArchitectureSettings(**{"residual": "gated", **(architecture or {})}), kernel, item_optimizer, data, strategy
    )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"architecture": {"attention": "gru"}}, "attention gru.*another attention"),
        ({"architecture": {"residual": "gated_mhc"}}, "residual gated_mhc.*use plain or gated"),
        ({"architecture": {"activation_checkpointing": True}}, "activation_checkpointing true.*use false"),
        ({"kernel": "triton"}, "attention_kernel triton.*use torch"),
        ({"item_optimizer": "lazy_adamw"}, "item_optimizer lazy_adamw.*use dense"),
        ({"features": object()}, "item_features.*remove them"),
        ({"negatives": "data.init_args.batch_negatives 5"}, "batch_negatives 5.*use uniform negatives"),
        ({"strategy": VerifiedFSDPStrategy()}, "trainer.strategy VerifiedFSDPStrategy.*use ddp"),
    ],
)
def test_what_is_not_in_a_graph_of_fixed_shapes_is_refused(settings, message):
    check()
    with pytest.raises(
        ValueError, match=f"^model.init_args.compile_step true with .*{message}, or compile_step false$"
    ):
        check(**settings)


def test_devices_without_a_compiler_are_refused(monkeypatch):
    with pytest.raises(ValueError, match="the device is mps: use false"):
        check_compiler(torch.device("mps"))
    monkeypatch.setattr(compile_checks.shutil, "which", lambda name: None)
    with pytest.raises(ValueError, match=r"no C\+\+ compiler \(.*g\+\+, clang\+\+\).*install one"):
        check_compiler(torch.device("cpu"))
    monkeypatch.setattr(compile_checks, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match="pip install triton"):
        check_compiler(torch.device("cuda"))


def test_a_run_is_refused_before_it_trains(lockstep):
    with pytest.raises(ValueError, match="compile_step true with model.init_args.residual mhc"):
        lockstep("fit", *TINY, "--model.init_args.compile_step", "true", "--model.init_args.residual", "mhc", name="a")
