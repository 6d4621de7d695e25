"""Checks the optimizer state of a checkpoint against the parameters that it is loaded for."""

from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from engine.checkpointing.schema import Rule, fields, kind
from engine.number_check import is_number
from engine.optim.eight_bit_state import QUANTIZED
from engine.optim.optimizers import OPTIMIZERS, state_owners
from engine.optim.row_optimizer import RowOptimizer
from engine.optim.row_table import RowTable
from engine.optim.row_updates import state_shapes

_MAX_STEPS = 2**53


def _is_step_count(value: object) -> bool:
    # torch's optimizers count steps in a tensor, bitsandbytes in an int.
    if isinstance(value, Tensor) and value.numel() == 1:
        value = value.item()
    return is_number(value) and 0 <= value < _MAX_STEPS  # NaN is false, too


_STEP = kind("a step count", _is_step_count)


def check_optimizer_state(optimizer: Optimizer, saved: Mapping[str, object], source: str) -> None:
    """Check that a checkpoint's optimizer state belongs to the parameters of an optimizer, before it is loaded.

    torch loads a state of another shape without complaint and fails in the next step.

    Args:
        optimizer: optimizer of the run.
        saved: its saved state; its structure is checked already.
        source: the checkpoint, for the message.

    Raises:
        ValueError: names the checkpoint, the key and what it holds.
    """
    problem = next(_problems(optimizer, saved), None)
    if problem is not None:
        raise ValueError(
            f"{source} holds another optimizer's state: {problem}. --ckpt_path FILE uses another checkpoint; another "
            "--run_name starts from scratch"
        )


def _problems(optimizer: Optimizer, saved: Mapping[str, Any]) -> Iterator[str]:
    groups, optimizer_groups = saved["param_groups"], optimizer.param_groups
    sizes, expected = [len(group["params"]) for group in groups], [len(group["params"]) for group in optimizer_groups]
    if sizes != expected:
        yield f"param_groups of {sizes} parameters, expected {expected}"
        return
    parameters = dict(
        zip(
            (number for group in groups for number in group["params"]),
            (parameter for group in optimizer_groups for parameter in group["params"]),
            strict=True,
        )
    )
    # A number that occurs twice is a single key of the dict.
    if len(parameters) != sum(sizes):
        yield "param_groups name a parameter twice"
    tables = optimizer.tables if isinstance(optimizer, RowOptimizer) else {}
    for number, state in saved["state"].items():
        if number not in parameters:
            yield f"state.{number} is of no parameter in param_groups"
        elif state:  # empty if all steps so far were skipped
            table = tables.get(parameters[number])
            rule = _state_of(parameters[number]) if table is None else _state_of_rows(table)
            yield from rule(state, f"state.{number}")


def _state_of(parameter: Tensor) -> Rule:
    moment = _numbers(list(parameter.shape))

    def check(state: Any, key: str) -> Iterator[str]:
        if QUANTIZED in state:  # in bitsandbytes' own form, which it checks
            return
        required = dict.fromkeys(OPTIMIZERS[state_owners(state)[0]].state_tensors, moment)
        yield from fields({"step": _STEP, **required})(state, key)

    return check


def _state_of_rows(table: RowTable) -> Rule:
    shapes = state_shapes(table.update, table.weight)
    return fields({"step": _STEP, **{key: _numbers(shape) for key, shape in shapes.items()}})


def _numbers(shape: list[int]) -> Rule:
    def fits(value: object) -> bool:
        return isinstance(value, Tensor) and value.is_floating_point() and list(value.shape) == shape

    return kind(f"a tensor of floating-point numbers {shape}", fits)
