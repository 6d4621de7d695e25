"""Builds optimizers by name."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor
from torch.optim import Optimizer

from engine.distributed.logical_shape import logical_numel
from engine.optim.eight_bit_state import MIN_QUANTIZED_ELEMENTS
from engine.optim.muon import Muon
from engine.optim.offload import OffloadedOptimizer
from engine.optim.row_optimizer import RowAdam, RowAdamW
from engine.optim.row_table import RowTable
from engine.system.bitsandbytes_import import import_bitsandbytes

log = logging.getLogger("lockstep")

OptimizerName = Literal["adamw", "adam", "adamw_8bit", "paged_adamw_8bit", "muon"]

EIGHT_BIT = ("adamw_8bit", "paged_adamw_8bit")
"""Optimizers with a state of 8 bits."""
_FUSED = ("adamw", "adam")


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
        ValueError: the name is unknown, `muon` has no matrix to train, or the optimizer cannot train tables by rows or
            has no fused kernel.
    """
    _check_tables(name, tables, offload, fused)
    if offload:

        def on_cpu(groups: list[dict[str, Any]], copies: Mapping[Tensor, Tensor]) -> Optimizer:
            # The offloaded optimizer trains copies, so sets of parameters become sets of their copies.
            embedded, matrices = ([copies[p] for p in each if p in copies] for each in (embeddings, hidden))
            return build_optimizer(name, groups, learning_rate, betas, embedded, matrices, fused=fused)

        return OffloadedOptimizer(groups, on_cpu)
    if tables:
        return _build_for_rows(name, groups, learning_rate, betas, tables)
    # `fused` is None rather than False: torch 2.13 picks its multi-tensor kernels only for None.
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused or None)
    if name == "adam":
        return torch.optim.Adam(groups, lr=learning_rate, betas=betas, fused=fused or None)
    if name in EIGHT_BIT:
        return _eight_bit(groups, learning_rate, betas, embeddings, paged=name == "paged_adamw_8bit")
    if name == "muon":
        return _muon(groups, learning_rate, betas, hidden)
    raise ValueError(f"model.init_args.optimizer is {name!r}, expected one of {', '.join(get_args(OptimizerName))}")


def _check_tables(name: OptimizerName, tables: Sequence[RowTable], offload: bool, fused: bool) -> None:
    """Raise ValueError if a fused kernel or the offload cannot train tables by rows, or there is no such kernel."""
    if fused and (tables or name not in _FUSED):
        what = f"{tables[0].name} is trained by rows" if tables else f"optimizer {name} has no fused kernel"
        raise ValueError(
            f"model.init_args.optimizer_fused true, but {what}: use optimizer_fused false, or optimizer "
            f"{' or '.join(_FUSED)} without tables by rows"
        )
    if offload and tables:
        raise ValueError(
            f"model.init_args.optimizer_offload true, but {tables[0].name} is trained by rows, which needs little "
            "state: use optimizer_offload false"
        )


def _build_for_rows(
    name: OptimizerName,
    groups: list[dict[str, Any]],
    learning_rate: float,
    betas: tuple[float, float],
    tables: Sequence[RowTable],
) -> Optimizer:
    if name == "adamw":
        return RowAdamW(tables, groups, lr=learning_rate, betas=betas)
    if name == "adam":
        return RowAdam(tables, groups, lr=learning_rate, betas=betas)
    table = f"{tables[0].name} by rows ({tables[0].update})"
    raise ValueError(f"model.init_args.optimizer {name} cannot train {table}: use adamw or adam")


def _muon(
    groups: list[dict[str, Any]], learning_rate: float, betas: tuple[float, float], hidden: Collection[Tensor]
) -> Optimizer:
    trained = [parameter for group in groups for parameter in group["params"]]
    matrices = [parameter for parameter in trained if parameter in set(hidden)]
    if not matrices:
        raise ValueError(
            "model.init_args.optimizer muon: no trained parameter is a hidden matrix, which muon is for. Use adamw"
        )
    log.info(
        "muon: %d matrices with %s of %s trained parameters; AdamW trains the rest", len(matrices),
        f"{sum(map(logical_numel, matrices)):,}", f"{sum(map(logical_numel, trained)):,}",
    )  # fmt: skip
    return Muon(groups, matrices, learning_rate, betas)


def _eight_bit(
    groups: list[dict[str, Any]],
    learning_rate: float,
    betas: tuple[float, float],
    embeddings: Collection[Tensor],
    paged: bool,
) -> Optimizer:
    full_precision = set(embeddings)
    bitsandbytes = import_bitsandbytes()

    class EightBitAdamW(bitsandbytes.optim.AdamW8bit):  # type: ignore[misc, name-defined]  # has no type hints
        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            # bitsandbytes' own registry of exceptions is global and would outlive the model.
            config = super().get_config(gindex, pindex, group)
            # bitsandbytes keeps the state of a parameter in `optim_bits` bits.
            return {**config, "optim_bits": 32} if group["params"][pindex] in full_precision else config

    trained = [parameter for group in groups for parameter in group["params"]]
    optimizer: Optimizer
    if any(hasattr(parameter, "full_tensor") for parameter in trained):  # of DTensors
        from engine.optim.eight_bit import ShardedEightBitAdamW

        optimizer = ShardedEightBitAdamW(groups, full_precision, learning_rate, betas)
    else:
        optimizer = EightBitAdamW(groups, lr=learning_rate, betas=betas, is_paged=paged)
    quantized = sum(
        logical_numel(p) for p in trained if p not in full_precision and logical_numel(p) >= MIN_QUANTIZED_ELEMENTS
    )
    log.info(
        "adamw_8bit: the state of %s of %s trained parameters in 8 bits; embeddings and tensors of fewer than %s "
        "elements keep 32", f"{quantized:,}", f"{sum(map(logical_numel, trained)):,}", f"{MIN_QUANTIZED_ELEMENTS:,}",
    )  # fmt: skip
    return optimizer
