"""Writes and reads weights and optimizer state as shards, with torch.distributed.checkpoint.

A shard records the position of its elements in the whole tensor, so any number of ranks reads what another number has
written. Only tensors are written: torch reads everything else by plain pickle, which could run code.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.optim import Optimizer

from engine.checkpointing.sharded.optimizer_names import number_parameters, optimized_parameters
from engine.checkpointing.sharded.saved_state_checks import (
    check_optimizer_is_complete,
    check_optimizer_parameters,
    check_shapes,
)
from engine.checkpointing.sharded.shard_files import entries_with_prefix, load_tensors, tensor_sizes, weights_prefix
from engine.distributed.collectives import gather_shards
from engine.distributed.errors import MismatchError
from engine.distributed.row_shards import is_trained_by_rows, new_rows
from engine.optim.eight_bit_state import BLOCK

GROUPS = "optimizer_groups"
"""Key, beside the shards, of each optimizer's parameter groups, with names of parameters."""

_WHOLE: dict[str, Callable[[int], int]] = {
    "absmax1": lambda elements: -(-elements // BLOCK), "absmax2": lambda elements: -(-elements // BLOCK),
    "qmap1": lambda elements: 1 << 8, "qmap2": lambda elements: 1 << 8,
}  # fmt: skip
"""Keys of tensors of an 8-bit optimizer state that are not sharded, and their lengths by elements of the weight."""

# -- shards ------------------------------------------------------------------------------------------------------------


def write_shards(folder: Path, weights: Mapping[str, Tensor], states: Sequence[Mapping[str, Any]]) -> None:
    """Write weights and optimizer states into a folder. A collective.

    Args:
        folder: new folder, on a file system that all ranks share.
        weights: {name: tensor or DTensor}; of a DTensor each rank writes its shard.
        states: `named_optimizer_state` of each optimizer; only tensors are written.

    Raises:
        CheckpointException: a rank could not write; on all ranks.
    """
    import torch.distributed.checkpoint as dcp

    content: dict[str, Any] = {"state_dict": dict(weights)}
    for number, state in enumerate(states):
        content[f"optimizer_{number}"] = {"state": state["state"]}
    dcp.save(content, checkpoint_id=folder)


def read_shards(
    folder: Path,
    module: nn.Module,
    optimizers: Sequence[Optimizer],
    groups: Sequence[Any] | None = None,
    starts: bool = False,
) -> None:
    """Read weights and optimizer states into a model, sharded or not, on all ranks.

    Args:
        folder: sharded checkpoint, verified.
        module: model whose weights are replaced.
        optimizers: optimizers whose states are replaced; their options stay.
        groups: content of `GROUPS`; None if the checkpoint has none. Then each trained parameter must have a state.
        starts: whether the checkpoint was saved before the first step, when there is no state yet.

    Raises:
        MismatchError: the shards are of another model or optimizer.
        CorruptMetadataError: their index cannot be read.
    """
    sizes = tensor_sizes(folder)
    # Names and shapes first, so that a foreign checkpoint changes no weight.
    module_weights = {name: tensor.detach() for name, tensor in module.state_dict().items()}
    prefix = weights_prefix(sizes)
    check_shapes(
        {name: tensor.shape for name, tensor in module_weights.items()}, entries_with_prefix(sizes, prefix), "the model"
    )
    tensors = {f"{prefix}.{name}": tensor for name, tensor in module_weights.items()}
    # The tensors of the states are created from the shapes in the checkpoint: a new optimizer has none.
    states: list[dict[Tensor, dict[str, Tensor]]] = []
    for number, optimizer in enumerate(optimizers):
        saved = entries_with_prefix(sizes, f"optimizer_{number}.state")
        names = {name: weight for name, weight in optimized_parameters(module).items() if weight.requires_grad}
        empty = _empty_state(saved, names, module)
        tensors.update({f"optimizer_{number}.state.{path}": tensor for path, tensor in empty.items()})
        state: dict[Tensor, dict[str, Tensor]] = {}
        for path, tensor in empty.items():
            name, _, key = path.rpartition(".")
            state.setdefault(names[name], {})[key] = tensor
        states.append(state)
        check_optimizer_parameters(optimizer, state, names)
        if saved or not starts:
            stored = {path.rpartition(".")[0] for path in saved}
            if groups is not None:  # a parameter without gradients has no state
                stored = {name for group in groups[number : number + 1] for part in group for name in part["params"]}
            check_optimizer_is_complete(optimizer, stored, module)
    # The weights are read in place; the optimizers get their states only after all reads have succeeded.
    load_tensors(folder, tensors)
    for optimizer, state in zip(optimizers, states, strict=True):
        optimizer.state.clear()
        optimizer.state.update(state)


def saved_state_keys(folder: Path, number: int) -> dict[str, dict[str, tuple[torch.Size, torch.dtype]]]:
    """Return {parameter: {key: (shape, format)}} of the state of optimizer `number` in a sharded checkpoint."""
    states: dict[str, dict[str, tuple[torch.Size, torch.dtype]]] = {}
    for path, saved in entries_with_prefix(tensor_sizes(folder), f"optimizer_{number}.state").items():
        name, _, key = path.rpartition(".")
        states.setdefault(name, {})[key] = saved
    return states


def read_full_checkpoint(folder: Path, groups: Sequence[Any] | None) -> dict[str, Any]:
    """Read a sharded checkpoint in this process alone, as the parts of a checkpoint in a single file.

    Args:
        folder: sharded checkpoint, verified.
        groups: content of `GROUPS`; None if the checkpoint has none.

    Returns:
        `state_dict`, and `optimizer_states` if `groups` is given.
    """
    sizes = tensor_sizes(folder)
    # Whole tensors in host memory: this process alone reads the shards of all ranks.
    tensors = {path: torch.empty(size, dtype=dtype) for path, (size, dtype) in sizes.items()}
    if groups is None:
        prefix = weights_prefix(sizes)
        tensors = {path: tensor for path, tensor in tensors.items() if path.startswith(f"{prefix}.")}
    load_tensors(folder, tensors, alone=True)
    content: dict[str, Any] = {"state_dict": entries_with_prefix(tensors, weights_prefix(sizes))}
    if groups is not None:
        content["optimizer_states"] = []
        for number, param_groups in enumerate(groups):
            state: dict[str, dict[str, Tensor]] = {}
            for path, tensor in entries_with_prefix(tensors, f"optimizer_{number}.state").items():
                name, _, key = path.rpartition(".")
                state.setdefault(name, {})[key] = tensor
            content["optimizer_states"].append(number_parameters({"state": state, "param_groups": param_groups}))
    return content


# -- whole tensors -----------------------------------------------------------------------------------------------------


@torch.no_grad()
def gather_full(content: Any, keep: bool) -> Any:
    """Return a nested dict with whole tensors on the CPU instead of shards. A collective.

    Args:
        content: equal structure on all ranks.
        keep: whether this rank needs the result; the others get the dict without tensors.
    """
    if isinstance(content, Mapping):
        return {key: gather_full(value, keep) for key, value in content.items()}
    if isinstance(content, DTensor):
        # All ranks take part in the gather, also those that drop the result.
        content = gather_shards(content)
    if isinstance(content, Tensor):
        return content.detach().cpu() if keep else None
    return content


@torch.no_grad()
def load_full(
    checkpoint: Mapping[str, Any], module: nn.Module, optimizers: Sequence[Optimizer], omitted: Collection[str] = ()
) -> None:
    """Load a checkpoint of whole tensors into a sharded model; each rank takes its shards.

    Args:
        checkpoint: content of a checkpoint in a single file.
        module: model whose weights are replaced.
        optimizers: optimizers whose states are replaced.
        omitted: names of weights that the checkpoint omits and that the model keeps.

    Raises:
        MismatchError: it is of another model or optimizer.
    """
    module_weights = {name: value for name, value in module.state_dict().items() if name not in omitted}
    saved = checkpoint["state_dict"]
    sizes = {name: (tensor.shape, tensor.dtype) for name, tensor in saved.items()}
    check_shapes({name: value.shape for name, value in module_weights.items()}, sizes, "the model")
    for name, tensor in module_weights.items():
        _fill(tensor, saved[name])
    weights = {weight: module.get_parameter(name) for name, weight in optimized_parameters(module).items()}
    states = checkpoint.get("optimizer_states", [])
    if len(states) != len(optimizers) and optimizers:
        raise MismatchError(f"it has the state of {len(states)} optimizers, expected {len(optimizers)}")
    for optimizer, state_dict in zip(optimizers, states, strict=False):  # an evaluation has no optimizer
        parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
        # torch numbers parameters in the order of the groups, so positions correspond.
        numbers = [number for group in state_dict["param_groups"] for number in group["params"]]
        if len(numbers) != len(parameters):
            raise MismatchError(f"optimizer state of {len(numbers)} parameters, expected {len(parameters)}")
        by_number = dict(zip(numbers, parameters, strict=True))
        optimizer.state.clear()
        for number, values in state_dict["state"].items():
            parameter = by_number[number]
            optimizer.state[parameter] = {
                key: _fill(_empty_tensor(weights[parameter], (value.shape, value.dtype), str(number), key), value)
                for key, value in values.items()
                if isinstance(value, Tensor)
            }


def _fill(target: Tensor, full: Tensor) -> Tensor:
    """Copy into `target` the shards of a whole tensor that this rank holds. Shards in host memory stay there."""
    if isinstance(target, DTensor):
        # Each rank has read the file, so none needs to send anything.
        full = distribute_tensor(full.to(target.device), target.device_mesh, target.placements, src_data_rank=None)
    return target.copy_(full)


def _empty_state(
    saved: Mapping[str, tuple[torch.Size, torch.dtype]], names: Mapping[str, Tensor], module: nn.Module
) -> dict[str, Tensor]:
    """Return a tensor to read each entry of an optimizer's saved state into.

    Args:
        saved: {parameter.key: shape and dtype in the checkpoint}.
        names: {name: parameter} of the trained parameters.
        module: the model.
    """
    empty = {}
    for path, size_and_dtype in saved.items():
        name, _, key = path.rpartition(".")
        if name not in names:
            raise MismatchError(f"optimizer state of {name}, which this model lacks or does not train")
        empty[path] = _empty_tensor(module.get_parameter(name), size_and_dtype, name, key)
    return empty


def _empty_tensor(parameter: nn.Parameter, saved: tuple[torch.Size, torch.dtype], name: str, key: str) -> Tensor:
    """Return a tensor to read a parameter's saved state into.

    It is in shards like the parameter's, a step count, or whole on each rank: scales and values of 8-bit codes. The
    state of a table that is trained by rows may be a number for each row.
    """
    size, dtype = saved
    if key in _WHOLE and list(size) == [_WHOLE[key](parameter.numel())]:
        device = parameter.to_local().device if isinstance(parameter, DTensor) else parameter.device
        return torch.zeros(size, dtype=dtype, device=device)
    if size == parameter.shape and len(size):
        return torch.zeros_like(parameter, dtype=dtype, requires_grad=False).detach()
    if size.numel() == 1:
        return torch.zeros(size, dtype=dtype)
    if is_trained_by_rows(parameter) and size == parameter.shape[:1]:
        return new_rows(parameter.detach(), size)
    raise MismatchError(f"optimizer state {tuple(size)} of {name}, whose shape is {tuple(parameter.shape)}")
