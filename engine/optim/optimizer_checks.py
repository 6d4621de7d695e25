"""Checks that an optimizer suits the strategy and the checkpoint."""

from collections.abc import Mapping
from typing import Any

from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy

from engine.distributed.data_parallel_rank import strategy_tensor_parallel_size
from engine.optim.optimizers import OPTIMIZERS, OptimizerName, state_owners


def check_strategy(name: OptimizerName, strategy: Strategy, offload: bool = False, fused: bool = False) -> None:
    """Check that the strategy and its device suit an optimizer.

    Args:
        name: see LockstepModule.
        strategy: strategy of the training.
        offload: `optimizer_offload` of LockstepModule.
        fused: `optimizer_fused` of LockstepModule.

    Raises:
        ValueError: FSDP1; 8-bit state with tensor parallelism; the offload, a fused kernel or 16-mixed with shards;
            `paged_adamw_8bit` without CUDA, with shards or with the offload; or a fused kernel with precision 16-mixed.
    """
    if isinstance(strategy, FSDPStrategy):
        raise ValueError(
            f"trainer.strategy is {type(strategy).__name__} of Lightning, which is FSDP1: it cannot verify its "
            "checkpoints. Use --config configs/overlays/fsdp.yaml without --trainer.strategy: FSDP2 with checkpoints "
            "that load on any number of ranks"
        )
    sharded = isinstance(strategy, ModelParallelStrategy)
    if OPTIMIZERS[name].in_blocks and (tensor_parallel := strategy_tensor_parallel_size(strategy)) > 1:
        raise ValueError(
            f"model.init_args.optimizer {name} with trainer.strategy.init_args.tensor_parallel "
            f"{tensor_parallel}: its blocks do not follow divided layers. Use adamw"
        )
    if OPTIMIZERS[name].paged:
        _check_paged(strategy, offload, sharded)
    if offload and sharded:
        raise ValueError(
            f"model.init_args.optimizer_offload with trainer.strategy {type(strategy).__name__}: the strategy moves "
            "its shards itself. Use --trainer.strategy.init_args.cpu_offload true, and optimizer_offload false"
        )
    if sharded and strategy.precision_plugin.precision == "16-mixed":
        # Each rank would look for an overflow in its own shards, and could skip a step that the other ranks take.
        raise ValueError(
            f"trainer.precision 16-mixed with trainer.strategy {type(strategy).__name__}: use bf16-mixed, which needs "
            "no loss scale"
        )
    if fused:
        _check_fused(strategy, sharded)


def _check_paged(strategy: Strategy, offload: bool, sharded: bool) -> None:
    """Raise ValueError if a strategy does not suit `paged_adamw_8bit`, whose state CUDA moves between the memories."""
    if strategy.root_device.type != "cuda":
        raise ValueError(
            "model.init_args.optimizer paged_adamw_8bit needs CUDA, whose driver moves its state between the memories; "
            f"the device is {strategy.root_device.type}. Use adamw_8bit, which has the same state"
        )
    if offload:
        raise ValueError(
            "model.init_args.optimizer paged_adamw_8bit with optimizer_offload true: both keep the state "
            "in CPU memory. Use adamw_8bit with optimizer_offload, or the paged optimizer alone"
        )
    if sharded:
        raise ValueError(
            f"model.init_args.optimizer paged_adamw_8bit with trainer.strategy {type(strategy).__name__}: CUDA moves "
            "whole states between the memories, not shards. Use adamw_8bit, and "
            "--trainer.strategy.init_args.cpu_offload true for a state in CPU memory"
        )


def _check_fused(strategy: Strategy, sharded: bool) -> None:
    """Raise ValueError if a strategy does not suit a fused kernel."""
    if sharded:
        raise ValueError(
            f"model.init_args.optimizer_fused true with trainer.strategy {type(strategy).__name__}, with which it is "
            "not tested: use optimizer_fused false"
        )
    if strategy.precision_plugin.precision == "16-mixed":
        # The kernel divides by the scale of the loss itself, after the gradients were clipped and their norm compared.
        raise ValueError(
            "model.init_args.optimizer_fused true with trainer.precision 16-mixed: use bf16-mixed, or optimizer_fused "
            "false"
        )


def check_state(name: OptimizerName, saved: Mapping[str, Any], fused: bool = False) -> None:
    """Check that a checkpoint's optimizer state belongs to the config's optimizer.

    Args:
        name: optimizer of the config, see LockstepModule.
        saved: optimizer state of a checkpoint.
        fused: `optimizer_fused` of LockstepModule.

    Raises:
        ValueError: the state is of another optimizer, or `fused` has changed.
    """
    # A state dict does not name its optimizer, so the keys of the states decide.
    owners = [state_owners(state) for state in saved["state"].values()]
    if not owners:
        return  # saved before the first step
    # A state with keys of its own decides: muon's states include AdamW's.
    names = max(owners, key=lambda each: bool(OPTIMIZERS[each[0]].state_marks))
    if name not in names:
        raise ValueError(
            f"the checkpoint's optimizer state is of {' or '.join(names)}, and {name} cannot resume from it: use "
            f"--model.init_args.optimizer {names[0]}, or start from scratch with another --run_name"
        )
    was_fused = any(group.get("fused") for group in saved["param_groups"])
    if fused != was_fused:  # the last bits would change in the middle of the run
        raise ValueError(
            f"the checkpoint's optimizer was trained with optimizer_fused {str(was_fused).lower()}: use "
            f"--model.init_args.optimizer_fused {str(was_fused).lower()}, or start from scratch with another --run_name"
        )
