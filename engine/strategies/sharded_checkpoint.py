"""Saves sharded weights and optimizer state in verified checkpoints.

Lightning's ModelParallelStrategy overwrites the shards of an existing checkpoint in place, and reads checkpoints with
plain pickle.
"""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from lightning.pytorch.strategies import Strategy
from torch.optim import Optimizer
from typing_extensions import override

from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.checkpointing.checkpoint_schema import require_checkpoint
from engine.checkpointing.compatibility import check_weights_only_loadable
from engine.checkpointing.frozen_weights import FROZEN_KEY, require_frozen
from engine.checkpointing.optimizer_state import check_optimizer_state
from engine.checkpointing.sharded.shard_manifest import write_manifest
from engine.checkpointing.verification import PROGRESS, CorruptCheckpointError, load_lazily, verify, verify_sizes
from engine.distributed.errors import MismatchError
from engine.io.atomic_file import flush_folder, remove, temp_path
from engine.lightning_internals.strategies import ModelSetupStrategy
from engine.optim.eight_bit_state import as_bitsandbytes, from_bitsandbytes
from engine.optim.optimizer_checks import check_state
from engine.optimizer_module import OptimizerModule

log = logging.getLogger("lockstep")


class ShardedCheckpointStrategy(ModelSetupStrategy):
    """ModelParallelStrategy that writes shards to a new folder, verifies them, and then gives the folder its name.

    Attributes:
        state_dict_type: `sharded` (a folder; each rank writes its shard) or `full` (one file; gathered by rank 0).
            Any strategy and any number of ranks loads both.
    """

    state_dict_type: Literal["sharded", "full"] = "sharded"

    @override
    def lightning_module_state_dict(self) -> dict[str, Any]:
        from engine.checkpointing.sharded.sharded_state import gather_full

        assert self.lightning_module is not None
        weights = self.lightning_module.state_dict()
        return weights if self.state_dict_type == "sharded" else gather_full(weights, self.is_global_zero)

    @override
    def optimizer_state(self, optimizer: Optimizer) -> dict[str, Any]:
        from engine.checkpointing.sharded.optimizer_names import named_optimizer_state, number_parameters
        from engine.checkpointing.sharded.sharded_state import gather_full

        assert self.lightning_module is not None
        state = named_optimizer_state(self.lightning_module, getattr(optimizer, "optimizer", optimizer))
        if self.state_dict_type == "sharded":
            return state
        # A single file has parameters by number, as an optimizer without shards saves them.
        full_state = number_parameters(gather_full(state, self.is_global_zero))
        return as_bitsandbytes(full_state) if self.is_global_zero else full_state

    @override
    def save_checkpoint(
        self, checkpoint: dict[str, Any], filepath: str | Path, storage_options: Any | None = None
    ) -> None:
        """Save a checkpoint, on all ranks. VerifiedCheckpointIO documents what happens if writing fails."""
        plugin = self.checkpoint_io
        assert isinstance(plugin, VerifiedCheckpointIO)
        if self.state_dict_type == "full":
            Strategy.save_checkpoint(self, checkpoint, filepath, storage_options)
            return
        path = Path(filepath)
        if self.is_global_zero:
            plugin.finish_writing()
        begun = time.monotonic()
        # All ranks write into one folder. The name contains the host and PID of rank 0.
        temporary = Path(self.broadcast(str(temp_path(path))))
        error: Exception | None = None
        try:
            self._write_shards(checkpoint, temporary)
        except Exception as raised:  # torch raises on all ranks, a wrong content on rank 0 alone
            error = raised
        if self.is_global_zero:
            if error is None:
                plugin.commit(path, lambda: _require_verified(temporary), begun)
            else:
                remove(temporary)
                plugin.record_failure(path, error)
        elif error is not None:
            log.debug("saving %s", path, exc_info=error)

    def _write_shards(self, checkpoint: dict[str, Any], folder: Path) -> None:
        from engine.checkpointing.sharded.sharded_state import GROUPS, write_shards

        # The tensors go into shards; the rest of the checkpoint is small and equal on all ranks.
        weights, states = checkpoint.pop("state_dict"), checkpoint.pop("optimizer_states", [])
        write_shards(folder, weights, states)
        if self.is_global_zero:
            content = {**checkpoint, GROUPS: [state["param_groups"] for state in states]}
            check_weights_only_loadable(content)
            with (folder / PROGRESS).open("wb") as file:  # torch flushes the shards, and not this file
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())

    @override
    def load_checkpoint(self, checkpoint_path: str | Path, weights_only: bool | None = None) -> dict[str, Any]:
        """Load a verified checkpoint of any strategy and number of ranks; all ranks raise if it is corrupt."""
        from engine.checkpointing.sharded.sharded_state import GROUPS, gather_full, load_full, read_shards

        path, problem = Path(checkpoint_path), ""
        if self.is_global_zero:
            try:
                verify(path)
                require_checkpoint(load_lazily(path), path)
            except (ValueError, OSError) as error:  # a corrupt checkpoint is a ValueError, too
                problem = str(error)
        # Rank 0 alone reads every byte; all ranks raise what it has found.
        problem = self.broadcast(problem)
        if problem:
            raise CorruptCheckpointError(f"{problem}. --ckpt_path last uses the newest intact checkpoint of a run")
        content, module = load_lazily(path), self.lightning_module
        assert module is not None
        try:
            if path.is_dir():
                # Before the first step an optimizer has no state to check.
                starts = not content.get("global_step")
                self._check_saved_optimizer(path, content.get(GROUPS))
                read_shards(path, module, self.optimizers, content.get(GROUPS), starts)
            else:
                frozen = content.get(FROZEN_KEY, {})
                require_frozen(module, frozen, lambda weight: gather_full(weight, keep=True))
                for optimizer, state in zip(self.optimizers, content.get("optimizer_states", []), strict=False):
                    check_optimizer_state(optimizer, state, str(path))
                states = [from_bitsandbytes(state) for state in content.get("optimizer_states", [])]
                load_full({**content, "optimizer_states": states}, module, self.optimizers, frozen)
        except MismatchError as error:
            raise ValueError(
                f"{path} was written by another model or config: {error}. Use the config that it was trained with, or "
                "start from scratch with another --run_name"
            ) from error
        # Lightning passes the rest to hooks, which otherwise load what is loaded already.
        return {key: value for key, value in content.items() if key not in ("state_dict", "optimizer_states")}

    def _check_saved_optimizer(self, path: Path, groups: Sequence[Any] | None) -> None:
        """Check that the shards hold the state of the config's optimizer; another has states of the same sizes."""
        from engine.checkpointing.sharded.sharded_state import saved_state_keys

        module = self.lightning_module
        if not isinstance(module, OptimizerModule):
            return  # it builds an optimizer of its own, of which `read_shards` compares names and sizes
        for number, param_groups in enumerate(groups or [] if self.optimizers else []):
            saved = {"state": saved_state_keys(path, number), "param_groups": param_groups}
            check_state(module.optimizer_name, saved, module.optimizer_settings.fused)


def _require_verified(folder: Path) -> Path:
    try:
        verify_sizes(folder)
        write_manifest(folder)  # reads all shards once
        flush_folder(folder)
    except BaseException:
        remove(folder)
        raise
    return folder
