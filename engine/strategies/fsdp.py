"""Shards models that do not fit one GPU, by FSDP.

FSDP2 (`fully_shard`): each weight is a DTensor of which a rank holds some rows, on GPUs or CPUs. GlobalLossMean works
with it: like DDP it averages gradients over the ranks, and each rank multiplies its shard of them in place. Lightning's
ModelParallelStrategy shards nothing itself.
"""

import atexit
from typing import TYPE_CHECKING, Any, Literal

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy, Strategy
from torch import nn
from torchmetrics import Metric
from typing_extensions import override

from engine.checkpointing.sharded.optimizer_names import row_tables
from engine.family_hooks import FamilyHooks
from engine.lightning_internals.processes import set_process_group_backend
from engine.optim.row_table import RowTable
from engine.strategies.sharded_checkpoint import ShardedCheckpointStrategy

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh
    from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy

_BOTH_DEVICES = "cpu:gloo,cuda:nccl"
"""Backend for gradients in host memory: their norm is summed on the CPU, and NCCL has no collectives there."""

_STEPS = ("training_step", "validation_step", "test_step", "predict_step")


def has_sharded_weights(strategy: object) -> bool:
    """Return whether each rank holds a shard of the weights, so that all ranks must run equally many passes."""
    return isinstance(strategy, FSDPStrategy | ModelParallelStrategy)


class VerifiedFSDPStrategy(ShardedCheckpointStrategy):
    """FSDP2 with verified checkpoints: weights, gradients and optimizer state are sharded over the ranks.

    The repeated layers of a network (see `repeated_layers`) are gathered one at a time, when they run. All other
    weights, such as embeddings and heads, are gathered for the whole step: tied weights are used at both ends of the
    network, and the number of calls of a head may differ between ranks, which would otherwise wait for each other.

    Tables that are trained by rows (see `RowTable`) are sharded over all ranks and never gathered.

    In mixed precision weights are gathered in bf16 and gradients are summed in float32.

    Args:
        state_dict_type: form of checkpoints: `sharded` (a folder; each rank writes its shard) or `full` (one file;
            gathered by rank 0). Any strategy and any number of ranks loads both.
        sharding_strategy: `FULL_SHARD` shards all, `SHARD_GRAD_OP` all but the weights between forward and backward
            pass, `HYBRID_SHARD` all within a node with replicas between nodes.
        cpu_offload: keep weights and optimizer state in host memory; the slowest, for models that do not fit otherwise.

    Raises:
        ValueError: `sharding_strategy` shards nothing.
    """

    def __init__(
        self,
        state_dict_type: Literal["sharded", "full"] = "sharded",
        sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD", "NO_SHARD"] = "FULL_SHARD",
        cpu_offload: bool = False,
    ) -> None:
        if sharding_strategy == "NO_SHARD":
            raise ValueError(
                "trainer.strategy.init_args.sharding_strategy NO_SHARD shards nothing: use strategy ddp "
                "(configs/overlays/gpu.yaml)"
            )
        # Lightning's mesh is then [nodes, ranks of a node].
        super().__init__("auto", "auto", save_distributed_checkpoint=state_dict_type == "sharded")
        self.state_dict_type = state_dict_type
        self.sharding_strategy, self.cpu_offload = sharding_strategy, cpu_offload
        self._tables: list[RowTable] = []

    # -- setup -------------------------------------------------------------------------------------------------------

    @property
    @override
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        return {"num_replicas": self.world_size, "rank": self.global_rank}

    @property
    @override
    def process_group_backend(self) -> str | None:
        if self.cpu_offload and self.root_device.type == "cuda":
            return _BOTH_DEVICES
        return super().process_group_backend

    @override
    def setup_environment(self) -> None:
        connects = not torch.distributed.is_initialized()
        if self.process_group_backend == _BOTH_DEVICES:
            set_process_group_backend(self, _BOTH_DEVICES)
            if connects:  # NCCL warns about a group that is left; Lightning expects the name nccl
                atexit.register(_disconnect)
        super().setup_environment()

    @override
    def setup(self, trainer: Trainer) -> None:
        single_file = [callback for callback in trainer.checkpoint_callbacks if getattr(callback, "keep", 2) < 2]
        if self.state_dict_type == "sharded" and single_file and trainer.state.fn == "fit":
            # A folder cannot replace another atomically: for an instant no checkpoint has the name.
            raise ValueError(
                "with sharded checkpoints last_checkpoint.keep and best_checkpoint.keep must be at least 2, so that a "
                "complete one exists at every time"
            )
        Strategy.setup(self, trainer)  # ModelParallelStrategy expects a module that shards itself

    @override
    def model_to_device(self) -> None:
        """Do nothing: `setup_model` moves layer by layer, so a device never holds the whole model."""

    @override
    def setup_model(self, model: nn.Module) -> nn.Module:
        from torch.distributed.fsdp import FSDPModule, register_fsdp_forward_method

        self._tables = row_tables(model)
        if not isinstance(model, FSDPModule):  # else an earlier command of this process has sharded it
            self._shard_tables(model)
            self.shard(model)
            for name in _STEPS:
                register_fsdp_forward_method(model, name)
        if self.cpu_offload:
            _move_metrics(model, self.root_device)
        else:
            model.to(self.root_device)  # what is neither parameter nor buffer, such as metrics
        for table in self._tables:
            table.follow(model)
        return model

    def _shard_tables(self, model: nn.Module) -> None:
        from torch.distributed.device_mesh import init_device_mesh

        for table in self._tables:
            table.shard(model, init_device_mesh(self.root_device.type, (self.world_size,)))

    def shard(self, model: nn.Module) -> None:
        """Shard the repeated layers of a model, each on its own, and then all its other weights."""
        shard_layers(model, self.mesh(), self.sharding_strategy != "SHARD_GRAD_OP", **self.options())

    def mesh(self) -> "DeviceMesh":
        """Return the mesh over which weights are sharded: [ranks], or [nodes, ranks of a node] with replicas."""
        from torch.distributed.device_mesh import init_device_mesh

        if self.sharding_strategy == "HYBRID_SHARD":
            return self.device_mesh
        return init_device_mesh(self.root_device.type, (self.world_size,))

    def options(self) -> dict[str, Any]:
        """Return the arguments of `fully_shard` for each layer, besides the mesh."""
        from torch.distributed.fsdp import CPUOffloadPolicy, OffloadPolicy

        formats = gathered_formats(self.precision_plugin.precision == "bf16-mixed")
        pinned = self.root_device.type == "cuda"
        offload = CPUOffloadPolicy(pin_memory=pinned) if self.cpu_offload else OffloadPolicy()
        ignored = {table.weight for table in self._tables}
        return {"mp_policy": formats, "offload_policy": offload, "ignored_params": ignored}

    # -- evaluations -------------------------------------------------------------------------------------------------

    @override
    def on_validation_start(self) -> None:
        self._gather_weights()

    @override
    def on_validation_end(self) -> None:
        self._release_weights()

    @override
    def on_test_start(self) -> None:
        self._gather_weights()

    @override
    def on_test_end(self) -> None:
        self._release_weights()

    @override
    def on_predict_start(self) -> None:
        self._gather_weights()

    @override
    def on_predict_end(self) -> None:
        self._release_weights()

    def _gather_weights(self) -> None:
        """Gather the whole model before an evaluation."""
        for layer in self._layers_to_gather():
            layer.set_reshard_after_forward(False, recurse=False)
            layer.unshard()

    def _release_weights(self) -> None:
        """Release after an evaluation what `_gather_weights` has gathered."""
        for number, layer in enumerate(self._layers_to_gather()):
            # The backward pass begins with the weights of no layer but those of the module itself, which comes first.
            reshards = number > 0 and self.sharding_strategy != "SHARD_GRAD_OP"
            layer.set_reshard_after_forward(reshards, recurse=False)
            layer.reshard()

    def _layers_to_gather(self) -> "list[FSDPModule]":
        """Return module and layers if ranks run different numbers of forward passes in evaluations, else none."""
        from torch.distributed.fsdp import FSDPModule

        module = self.lightning_module
        assert isinstance(module, FamilyHooks) and isinstance(module, FSDPModule)
        if module.equal_evaluation_passes:
            return []
        return [part for part in module.modules() if isinstance(part, FSDPModule)]


def shard_layers(model: nn.Module, mesh: "DeviceMesh", reshard_after_forward: bool = True, **options: Any) -> None:
    """Shard the repeated layers of a model, each on its own, and then all its other weights, in place.

    Args:
        model: model of any device; its parameters become DTensors.
        mesh: see `VerifiedFSDPStrategy.mesh`.
        reshard_after_forward: free the weights of a layer between its forward and its backward pass.
        options: see `VerifiedFSDPStrategy.options`.
    """
    from torch.distributed.fsdp import fully_shard

    # `fully_shard` of the model takes the parameters that no layer has taken, so the layers come first.
    for layer in repeated_layers(model):
        fully_shard(layer, mesh=mesh, reshard_after_forward=reshard_after_forward, **options)
    fully_shard(model, mesh=mesh, **options)


def gathered_formats(is_mixed: bool) -> "MixedPrecisionPolicy":
    """Return the number formats in which FSDP gathers weights and sums gradients: bf16 and float32 if `is_mixed`."""
    from torch.distributed.fsdp import MixedPrecisionPolicy

    # Autocast casts the inputs of layers that need it. FSDP would cast all, and times would lose digits in bf16.
    return MixedPrecisionPolicy(
        param_dtype=torch.bfloat16 if is_mixed else None, reduce_dtype=torch.float32 if is_mixed else None,
        cast_forward_inputs=False,
    )  # fmt: skip


def repeated_layers(model: nn.Module) -> list[nn.Module]:
    """Return the members of the outermost module lists, which every rank runs equally often, in the model's order.

    Inner lists may hold experts, which only run for the samples that are routed to them.
    """
    if isinstance(model, nn.ModuleList):
        return [layer for layer in model if any(True for _ in layer.parameters())]
    layers = [layer for child in model.children() for layer in repeated_layers(child)]
    return list(dict.fromkeys(layers))  # a layer may be reached by two names


def _move_metrics(model: nn.Module, device: torch.device) -> None:
    """Move the states of metrics to the device, on which ranks sum them, even if the weights are in host memory."""
    for part in model.modules():
        if isinstance(part, Metric):
            part.to(device)


def _disconnect() -> None:
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
