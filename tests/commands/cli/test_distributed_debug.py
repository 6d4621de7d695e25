"""Tests `--distributed_debug`, which sets TORCH_DISTRIBUTED_DEBUG until version 0.3.0."""

import os

import pytest
import torch

from commands.cli.ddp_settings import set_distributed_debug


@pytest.fixture(autouse=True)
def level(monkeypatch):
    """The level before the test, which is the level after it."""
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    yield
    os.environ["TORCH_DISTRIBUTED_DEBUG"] = "OFF"
    torch.distributed.set_debug_level_from_env()


@pytest.mark.parametrize(
    ("option", "over_gloo", "expected"),
    [("DETAIL", True, "INFO"), ("DETAIL", False, "DETAIL"), ("INFO", True, "INFO")],
)
def test_the_option_sets_the_variable(caplog, option, over_gloo, expected):
    set_distributed_debug(option, over_gloo)
    assert torch.distributed.get_debug_level().name == os.environ["TORCH_DISTRIBUTED_DEBUG"] == expected
    assert caplog.messages == [
        f"deprecated: distributed_debug is now the environment variable TORCH_DISTRIBUTED_DEBUG={expected}"
    ]


def test_the_variable_stays_without_the_option(caplog):
    set_distributed_debug(None, over_gloo=True)
    assert (os.environ["TORCH_DISTRIBUTED_DEBUG"], caplog.messages) == ("OFF", [])
