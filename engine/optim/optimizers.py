"""Builds optimizers by name."""

import logging
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor
from torch.optim import Optimizer

from engine.distributed.logical_shape import logical_numel
from engine.optim.eight_bit_state import BLOCK, FIRST_MOMENT, MIN_QUANTIZED_ELEMENTS, QUANTIZED
from engine.optim.muon import MOMENTUM, Muon
from engine.optim.offload import OffloadedOptimizer
from engine.optim.row_optimizer import RowAdam, RowAdamW
from engine.optim.row_table import RowTable
from engine.system.bitsandbytes_import import import_bitsandbytes

log = logging.getLogger("lockstep")

OptimizerName = Literal["adamw", "adam", "adamw_8bit", "paged_adamw_8bit", "muon"]


class OptimizerInputs(NamedTuple):
    """What an optimizer is built from, see `build_optimizer`."""

    groups: list[dict[str, Any]]
    learning_rate: float
    betas: tuple[float, float]
    embeddings: Collection[Tensor] = ()
    hidden: Collection[Tensor] = ()
    fused: bool = False


@dataclass(frozen=True)
class OptimizerSpec:
    """An optimizer in `OPTIMIZERS`: how it is built, and what the checks of strategies and checkpoints need to know."""

    build: Callable[[OptimizerInputs], Optimizer]
    by_rows: Callable[..., Optimizer] | None = None
    """Class that also trains tables by rows."""
    has_fused: bool = False
    """Whether it has a kernel that updates all parameters at once."""
    state_marks: tuple[str, ...] = ()
    """Keys by which a parameter's state is known as this optimizer's. Optimizers with equal keys share states."""
    state_tensors: tuple[str, ...] = ("exp_avg", "exp_avg_sq")
    """Keys of the tensors of a parameter's shape in its state, which a checkpoint must have."""
    state_bytes: int = 8
    """Bytes of the state for each trained number, at most: muon keeps 4 for a matrix."""
    in_blocks: bool = False
    """Whether the state is quantized in blocks, which do not follow layers that tensor parallelism divides."""
    paged: bool = False
    """Whether CUDA moves the state between the memories."""
    extra: str | None = None
    """Extra of setup.cfg that it needs."""


def build_optimizer(
    name: OptimizerName,
    groups: list[dict[str, Any]],
    learning_rate: float,
    betas: tuple[float, float],
    embeddings: Collection[Tensor] = (),
    hidden: Collection[Tensor] = (),
    tables: Sequence[RowTable] = (),
    offload: bool = False,
    fused: bool = False,
) -> Optimizer:
    """Build the optimizer of a module.

    Args:
        name: see LockstepModule.
        groups: parameter groups, with options of their own.
        learning_rate: learning rate of groups that have none.
        betas: decay rates of the running means.
        embeddings: parameters whose state `adamw_8bit` keeps in 32 bits. In a step few of their rows have a gradient,
            and these are large (Dettmers et al., "8-bit Optimizers via Block-wise Quantization", 2022, section 2.3).
        hidden: matrices that `muon` orthogonalizes; it trains all other parameters as `adamw` does.
        tables: tables that are trained by rows; their groups are among `groups`.
        offload: keep the state in CPU memory and compute the step there.
        fused: update all parameters in one kernel.

    Raises:
        ValueError: the name is not in `OPTIMIZERS`, `muon` has no matrix to train, or the optimizer cannot train
            tables by rows or has no fused kernel.
    """
    if name not in OPTIMIZERS:
        raise ValueError(f"model.init_args.optimizer is {name!r}, expected one of {', '.join(OPTIMIZERS)}")
    _check_tables(name, tables, offload, fused)
    if offload:

        def on_cpu(groups: list[dict[str, Any]], copies: Mapping[Tensor, Tensor]) -> Optimizer:
            # The offloaded optimizer trains copies, so sets of parameters become sets of their copies.
            embedded, matrices = ([copies[p] for p in each if p in copies] for each in (embeddings, hidden))
            return build_optimizer(name, groups, learning_rate, betas, embedded, matrices, fused=fused)

        return OffloadedOptimizer(groups, on_cpu)
    if tables:
        by_rows = OPTIMIZERS[name].by_rows
        if by_rows is None:
            table = f"{tables[0].name} by rows ({tables[0].update})"
            raise ValueError(f"model.init_args.optimizer {name} cannot train {table}: use adamw or adam")
        return by_rows(tables, groups, lr=learning_rate, betas=betas)
    return OPTIMIZERS[name].build(OptimizerInputs(groups, learning_rate, betas, embeddings, hidden, fused))


def _check_tables(name: OptimizerName, tables: Sequence[RowTable], offload: bool, fused: bool) -> None:
    """Raise ValueError if a fused kernel or the offload cannot train tables by rows, or there is no such kernel."""
    if fused and (tables or not OPTIMIZERS[name].has_fused):
        what = f"{tables[0].name} is trained by rows" if tables else f"optimizer {name} has no fused kernel"
        suitable = " or ".join(each for each, spec in OPTIMIZERS.items() if spec.has_fused)
        raise ValueError(
            f"model.init_args.optimizer_fused true, but {what}: use optimizer_fused false, or optimizer "
            f"{suitable} without tables by rows"
        )
    if offload and tables:
        raise ValueError(
            f"model.init_args.optimizer_offload true, but {tables[0].name} is trained by rows, which needs little "
            "state: use optimizer_offload false"
        )


def _adamw(inputs: OptimizerInputs) -> Optimizer:
    # `fused` is None rather than False: torch 2.13 picks its multi-tensor kernels only for None.
    return torch.optim.AdamW(inputs.groups, lr=inputs.learning_rate, betas=inputs.betas, fused=inputs.fused or None)


def _adam(inputs: OptimizerInputs) -> Optimizer:
    return torch.optim.Adam(inputs.groups, lr=inputs.learning_rate, betas=inputs.betas, fused=inputs.fused or None)


def _muon(inputs: OptimizerInputs) -> Optimizer:
    trained = [parameter for group in inputs.groups for parameter in group["params"]]
    matrices = [parameter for parameter in trained if parameter in set(inputs.hidden)]
    if not matrices:
        raise ValueError(
            "model.init_args.optimizer muon: no trained parameter is a hidden matrix, which muon is for. Use adamw"
        )
    log.info(
        "muon: %d matrices with %s of %s trained parameters; AdamW trains the rest", len(matrices),
        f"{sum(map(logical_numel, matrices)):,}", f"{sum(map(logical_numel, trained)):,}",
    )  # fmt: skip
    return Muon(inputs.groups, matrices, inputs.learning_rate, inputs.betas)


def _eight_bit(inputs: OptimizerInputs, paged: bool) -> Optimizer:
    full_precision = set(inputs.embeddings)
    bitsandbytes = import_bitsandbytes()

    class EightBitAdamW(bitsandbytes.optim.AdamW8bit):  # type: ignore[misc, name-defined]  # has no type hints
        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            # bitsandbytes' own registry of exceptions is global and would outlive the model.
            config = super().get_config(gindex, pindex, group)
            # bitsandbytes keeps the state of a parameter in `optim_bits` bits.
            return {**config, "optim_bits": 32} if group["params"][pindex] in full_precision else config

    trained = [parameter for group in inputs.groups for parameter in group["params"]]
    optimizer: Optimizer
    if any(hasattr(parameter, "full_tensor") for parameter in trained):  # of DTensors
        from engine.optim.eight_bit import ShardedEightBitAdamW

        optimizer = ShardedEightBitAdamW(inputs.groups, full_precision, inputs.learning_rate, inputs.betas)
    else:
        optimizer = EightBitAdamW(inputs.groups, lr=inputs.learning_rate, betas=inputs.betas, is_paged=paged)
    quantized = sum(
        logical_numel(p) for p in trained if p not in full_precision and logical_numel(p) >= MIN_QUANTIZED_ELEMENTS
    )
    log.info(
        "%s: the state of %s of %s trained parameters in 8 bits; embeddings and tensors of fewer than %s elements keep "
        "32", "paged_adamw_8bit" if paged else "adamw_8bit", f"{quantized:,}", f"{sum(map(logical_numel, trained)):,}",
        f"{MIN_QUANTIZED_ELEMENTS:,}",
    )  # fmt: skip
    return optimizer


def _quantized(paged: bool) -> OptimizerSpec:
    return OptimizerSpec(
        partial(_eight_bit, paged=paged), state_marks=(QUANTIZED, FIRST_MOMENT), state_bytes=2, in_blocks=True,
        paged=paged, extra="bits",
    )  # fmt: skip


OPTIMIZERS: dict[OptimizerName, OptimizerSpec] = {
    "adamw": OptimizerSpec(_adamw, by_rows=RowAdamW, has_fused=True),
    "adam": OptimizerSpec(_adam, by_rows=RowAdam, has_fused=True),
    "adamw_8bit": _quantized(paged=False),
    "paged_adamw_8bit": _quantized(paged=True),
    "muon": OptimizerSpec(_muon, state_marks=(MOMENTUM,), state_tensors=(MOMENTUM,)),
}
"""All optimizers. Their order is that of messages."""


def state_size(numbers: int, state_bytes: int, in_blocks: bool, is_embedding: bool) -> int:
    """Return the bytes of the optimizer's state of a weight; 8-bit AdamW keeps 32 bits for embeddings.

    Args:
        numbers: elements of the weight.
        state_bytes: `OptimizerSpec.state_bytes`, 0 for a state that is not on the device of the weight.
        in_blocks: `OptimizerSpec.in_blocks`.
        is_embedding: whether the weight is an embedding's.
    """
    if not in_blocks or not state_bytes:
        return state_bytes * numbers
    if is_embedding or numbers < MIN_QUANTIZED_ELEMENTS:
        return 8 * numbers
    return state_bytes * numbers + 8 * math.ceil(numbers / BLOCK)  # and the scales of the two moments' blocks


def state_owners(state: Mapping[str, Any]) -> list[OptimizerName]:
    """Return the optimizers that a parameter's state may be of, by its keys."""
    kinds = (spec.state_marks for spec in OPTIMIZERS.values())
    marks = next((each for each in kinds if any(key in state for key in each)), ())
    return [name for name, spec in OPTIMIZERS.items() if spec.state_marks == marks]
