"""Builds optimizers by name, and checks that an optimizer suits the strategy and the checkpoint."""

import logging
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, get_args

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import Tensor
from torch.optim import Optimizer

from engine.distributed.unsharded_shape import unsharded_numel
from engine.optim.eight_bit_state import FIRST_MOMENT, QUANTIZED, SMALLEST
from engine.optim.muon import MOMENTUM, Muon
from engine.optim.offload import OffloadedOptimizer
from engine.optim.row_optimizer import RowAdam, RowAdamW
from engine.optim.row_table import RowTable

log = logging.getLogger("lockstep")

OptimizerName = Literal["adamw", "adam", "adamw_8bit", "paged_adamw_8bit", "muon"]

_EIGHT_BIT = ("adamw_8bit", "paged_adamw_8bit")
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
        learning_rate: for groups without one of their own.
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
    if fused and (tables or name not in _FUSED):
        what = f"{tables[0].name} is trained by rows" if tables else f"optimizer {name} has no fused kernel"
        raise ValueError(
            f"model.init_args.optimizer_fused true, but {what}: use optimizer_fused false, or optimizer "
            f"{' or '.join(_FUSED)} without tables by rows"
        )
    if offload:
        if tables:
            raise ValueError(
                f"model.init_args.optimizer_offload true, but {tables[0].name} is trained by rows, which needs little "
                "state: use optimizer_offload false"
            )

        def on_cpu(groups: list[dict[str, Any]], copies: Mapping[Tensor, Tensor]) -> Optimizer:
            embedded, matrices = ([copies[p] for p in each if p in copies] for each in (embeddings, hidden))
            return build_optimizer(name, groups, learning_rate, betas, embedded, matrices, fused=fused)

        return OffloadedOptimizer(groups, on_cpu)
    if tables:
        return _by_rows(name, groups, learning_rate, betas, tables)
    if name == "adamw":
        return torch.optim.AdamW(groups, lr=learning_rate, betas=betas, fused=fused or None)
    if name == "adam":
        return torch.optim.Adam(groups, lr=learning_rate, betas=betas, fused=fused or None)
    if name in _EIGHT_BIT:
        return _eight_bit(groups, learning_rate, betas, embeddings, paged=name == "paged_adamw_8bit")
    if name == "muon":
        return _muon(groups, learning_rate, betas, hidden)
    raise ValueError(f"model.init_args.optimizer is {name!r}, expected one of {', '.join(get_args(OptimizerName))}")


def _by_rows(
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
        f"{sum(map(unsharded_numel, matrices)):,}", f"{sum(map(unsharded_numel, trained)):,}",
    )  # fmt: skip
    return Muon(groups, matrices, learning_rate, betas)


def _eight_bit(
    groups: list[dict[str, Any]],
    learning_rate: float,
    betas: tuple[float, float],
    embeddings: Collection[Tensor],
    paged: bool,
) -> Optimizer:
    # The first import logs an error about a missing kernel for 4-bit weights, which are not used here.
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)
    import bitsandbytes

    full_precision = set(embeddings)

    class EightBitAdamW(bitsandbytes.optim.AdamW8bit):
        def get_config(self, gindex: int, pindex: int, group: dict[str, Any]) -> dict[str, Any]:
            # bitsandbytes' own registry of exceptions is global and would outlive the model.
            config = super().get_config(gindex, pindex, group)
            return {**config, "optim_bits": 32} if group["params"][pindex] in full_precision else config

    trained = [parameter for group in groups for parameter in group["params"]]
    optimizer: Optimizer
    if any(hasattr(parameter, "full_tensor") for parameter in trained):  # of DTensors
        from engine.optim.eight_bit import ShardedEightBitAdamW

        optimizer = ShardedEightBitAdamW(groups, full_precision, learning_rate, betas)
    else:
        optimizer = EightBitAdamW(groups, lr=learning_rate, betas=betas, is_paged=paged)
    quantized = sum(unsharded_numel(p) for p in trained if p not in full_precision and unsharded_numel(p) >= SMALLEST)
    log.info(
        "adamw_8bit: the state of %s of %s trained parameters in 8 bits; embeddings and tensors of fewer than %s "
        "elements keep 32", f"{quantized:,}", f"{sum(map(unsharded_numel, trained)):,}", f"{SMALLEST:,}",
    )  # fmt: skip
    return optimizer


def check_strategy(name: OptimizerName, strategy: Strategy, offload: bool = False, fused: bool = False) -> None:
    """Check that the strategy and its device suit an optimizer.

    Args:
        name: see LockstepModule.
        strategy: strategy of the training.
        offload: `optimizer_offload` of LockstepModule.
        fused: `optimizer_fused` of LockstepModule.

    Raises:
        ValueError: FSDP1; the offload, a fused kernel or 16-mixed, where ranks hold shards of the weights;
            `paged_adamw_8bit` without CUDA, with shards or with the offload; or a fused kernel with precision 16-mixed.
    """
    if isinstance(strategy, FSDPStrategy):
        raise ValueError(
            f"trainer.strategy is {type(strategy).__name__} of Lightning, which is FSDP1: it cannot verify its "
            "checkpoints. Use --config configs/overlays/fsdp.yaml without --trainer.strategy: FSDP2 with checkpoints "
            "that load on any number of ranks"
        )
    sharded = isinstance(strategy, ModelParallelStrategy)
    if name in _EIGHT_BIT and getattr(strategy, "tensor_parallel", 1) > 1:
        raise ValueError(
            f"model.init_args.optimizer {name} with trainer.strategy.init_args.tensor_parallel "
            f"{getattr(strategy, 'tensor_parallel', 1)}: its blocks do not follow divided layers. Use adamw"
        )
    if name == "paged_adamw_8bit" and strategy.root_device.type != "cuda":
        raise ValueError(
            "model.init_args.optimizer paged_adamw_8bit needs CUDA, whose driver moves its state between the memories; "
            f"the device is {strategy.root_device.type}. Use adamw_8bit, which has the same state"
        )
    if name == "paged_adamw_8bit" and offload:
        raise ValueError(
            "model.init_args.optimizer paged_adamw_8bit with optimizer_offload true: both keep the state "
            "in CPU memory. Use adamw_8bit with optimizer_offload, or the paged optimizer alone"
        )
    if offload and sharded:
        raise ValueError(
            f"model.init_args.optimizer_offload with trainer.strategy {type(strategy).__name__}: the strategy moves "
            "its shards itself. Use --trainer.strategy.init_args.cpu_offload true, and optimizer_offload false"
        )
    if sharded and strategy.precision_plugin.precision == "16-mixed":
        # Each rank would look for an overflow in its own shards, and one could skip a step that another takes.
        raise ValueError(
            f"trainer.precision 16-mixed with trainer.strategy {type(strategy).__name__}: use bf16-mixed, which needs "
            "no loss scale"
        )
    if fused and sharded:
        raise ValueError(
            f"model.init_args.optimizer_fused true with trainer.strategy {type(strategy).__name__}, with which it is "
            "not tested: use optimizer_fused false"
        )
    if fused and strategy.precision_plugin.precision == "16-mixed":
        # The kernel divides by the scale of the loss itself, after the gradients were clipped and their norm compared.
        raise ValueError(
            "model.init_args.optimizer_fused true with trainer.precision 16-mixed: use bf16-mixed, or optimizer_fused "
            "false"
        )
    if name == "paged_adamw_8bit" and sharded:
        raise ValueError(
            f"model.init_args.optimizer {name} with trainer.strategy {type(strategy).__name__}: CUDA moves whole "
            "states between the memories, not shards. Use adamw_8bit, and --trainer.strategy.init_args.cpu_offload "
            "true for a state in CPU memory"
        )


def check_state(name: OptimizerName, saved: Mapping[str, Any], fused: bool = False) -> None:
    """Check that a checkpoint's optimizer state belongs to the config's optimizer.

    Args:
        name: optimizer of the config, see LockstepModule.
        saved: optimizer state of a checkpoint.
        fused: `optimizer_fused` of LockstepModule.

    Raises:
        ValueError: the state is of another optimizer, or of one that is fused and this one is not, or the reverse.
    """
    kinds = {_optimizer_of(state) for state in saved["state"].values()}
    for kind in (
        " or ".join(_EIGHT_BIT),
        "muon",
        "adamw or adam",
    ):  # most specific first: muon's state includes AdamW's
        if kind in kinds:
            break
    else:
        return  # saved before the first step
    if name not in kind.split(" or "):
        raise ValueError(
            f"the checkpoint's optimizer state is of {kind}, and {name} cannot resume from it: use "
            f"--model.init_args.optimizer {kind.partition(' ')[0]}, or start from scratch with another --run_name"
        )
    was_fused = any(group.get("fused") for group in saved["param_groups"])
    if fused != was_fused:  # the last bits would change in the middle of the run
        raise ValueError(
            f"the checkpoint's optimizer was trained with optimizer_fused {str(was_fused).lower()}: use "
            f"--model.init_args.optimizer_fused {str(was_fused).lower()}, or start from scratch with another --run_name"
        )


def _optimizer_of(state: Mapping[str, Any]) -> str:
    if QUANTIZED in state or FIRST_MOMENT in state:
        return " or ".join(_EIGHT_BIT)
    return "muon" if MOMENTUM in state else "adamw or adam"
