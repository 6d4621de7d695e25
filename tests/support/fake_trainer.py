"""A trainer in attributes alone, for code that reads a few of them."""

from types import SimpleNamespace
from typing import Any

import torch


def fake_trainer(
    command: str = "fit", *, ranks: int = 1, device: str = "cpu", strategy: Any = None, **attributes: Any
) -> SimpleNamespace:
    """Return rank 0 of a trainer before its first step.

    Args:
        command: what it runs, `fit`, `validate`, `test` or `predict`.
        ranks: its world size.
        device: the device of its strategy.
        strategy: in place of a strategy that has a device alone.
        attributes: further ones, or others than those below.
    """
    defaults: dict[str, Any] = {
        "callbacks": [],
        "checkpoint_callbacks": [],
        "ckpt_path": None,
        "fast_dev_run": False,
        "global_rank": 0,
        "global_step": 0,
        "is_global_zero": True,
        "loggers": [],
        "num_devices": ranks,
        "overfit_batches": 0.0,
        "precision": "32-true",
        "sanity_checking": False,
        "state": SimpleNamespace(fn=command, stage=SimpleNamespace(value=command)),
        "strategy": strategy if strategy is not None else SimpleNamespace(root_device=torch.device(device)),
        "world_size": ranks,
        **{f"limit_{stage}_batches": 1.0 for stage in ("train", "val", "test", "predict")},
    }
    return SimpleNamespace(**{**defaults, **attributes})
