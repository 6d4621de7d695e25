"""Converts an 8-bit optimizer state between the form of bitsandbytes and the flat form of `ShardedEightBitAdamW`."""

from collections.abc import Mapping
from typing import Any

import torch

QUANTIZED = "__bnb_optimizer_quant_state__"
"""Key of a parameter's state in a checkpoint of bitsandbytes, beside its `step`."""

FIRST_MOMENT = "state1"
"""Key of the first moment, in 8 or 32 bits; AdamW's is another."""

MIN_QUANTIZED_ELEMENTS = 4096
"""Elements of the smallest weight whose state bitsandbytes keeps in 8 bits."""

BLOCK = 256
"""Elements of a weight whose state has a common scale."""


def as_bitsandbytes(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict of whole tensors in the form of bitsandbytes. The state of another optimizer is unchanged."""
    states = {
        number: {"step": int(state["step"]), QUANTIZED: {key: value for key, value in state.items() if key != "step"}}
        if FIRST_MOMENT in state
        else state
        for number, state in state_dict["state"].items()
    }
    return {**state_dict, "state": states}


def from_bitsandbytes(state_dict: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state dict of bitsandbytes with flat states. The state of another optimizer is unchanged."""
    states = {
        number: {"step": torch.tensor(float(state["step"])), **state[QUANTIZED]} if QUANTIZED in state else state
        for number, state in state_dict["state"].items()
    }
    return {**state_dict, "state": states}
