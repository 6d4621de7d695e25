"""Adds tensor parallelism to FSDP: groups of ranks share the work of each layer of a language model."""

import logging
from typing import TYPE_CHECKING, Any, Literal

from torch import nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from engine.distributed.data_parallel_rank import DataParallelRank
from engine.family_hooks import FamilyHooks
from engine.number_check import check_number
from engine.strategies.fsdp import VerifiedFSDPStrategy, repeated_layers

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh


class TensorParallelStrategy(VerifiedFSDPStrategy):
    """FSDP2 of which `tensor_parallel` neighboring ranks read the same samples and divide the language model's layers.

    The ranks of a group compute a part of each layer: some heads of an attention, some columns and rows of a matrix.
    They sum their parts twice in a layer's forward pass and five times in its backward pass, so a group belongs on
    one node with fast links. The groups train like the ranks of FSDP.

    Divided weights are sharded over the groups, too. All other weights are sharded over all ranks.

    Args:
        tensor_parallel: ranks of a group; must divide the number of ranks (with HYBRID_SHARD the ranks of a node), and
            the language model's heads.
        state_dict_type: see VerifiedFSDPStrategy.
        sharding_strategy: see VerifiedFSDPStrategy.
        cpu_offload: see VerifiedFSDPStrategy.
    """

    def __init__(
        self,
        tensor_parallel: int = 2,
        state_dict_type: Literal["sharded", "full"] = "sharded",
        sharding_strategy: Literal["FULL_SHARD", "SHARD_GRAD_OP", "HYBRID_SHARD"] = "FULL_SHARD",
        cpu_offload: bool = False,
    ) -> None:
        check_number("trainer.strategy.init_args.tensor_parallel", tensor_parallel, at_least=1)
        super().__init__(state_dict_type, sharding_strategy, cpu_offload)
        self.tensor_parallel = tensor_parallel

    @property
    @override
    def distributed_sampler_kwargs(self) -> dict[str, Any]:
        groups = DataParallelRank.from_global_rank(self.global_rank, self.world_size, self.tensor_parallel)
        return {"num_replicas": groups.size, "rank": groups.rank}

    @override
    def setup_environment(self) -> None:
        within = self.num_processes if self.sharding_strategy == "HYBRID_SHARD" else self.world_size
        if within % self.tensor_parallel:
            where = "of a node" if self.sharding_strategy == "HYBRID_SHARD" else "of the run"
            raise ValueError(
                f"trainer.strategy.init_args.tensor_parallel is {self.tensor_parallel}, which does not divide the "
                f"{within} ranks {where}. Choose a divisor, or another number of ranks"
            )
        super().setup_environment()

    @override
    def shard(self, model: nn.Module) -> None:
        from torch.distributed.fsdp import fully_shard
        from torch.distributed.tensor.parallel import parallelize_module

        assert isinstance(model, FamilyHooks)
        if self.tensor_parallel == 1:
            super().shard(model)
            return
        # torch logs once per process that sums over both axes of the mesh could be merged.
        logging.getLogger("torch.distributed.tensor").setLevel(logging.ERROR)
        # First divide the layers within each group; then FSDP shards what each rank holds.
        mesh = self._ranks()
        for layer, style in model.tensor_parallel_layers(self.tensor_parallel).items():
            # Each rank has the whole weight and keeps its part.
            parallelize_module(layer, mesh["tensor"], style, src_data_rank=None)
        groups = mesh["nodes", "groups"] if self.sharding_strategy == "HYBRID_SHARD" else mesh["groups"]
        options, reshard = self.options(), self.sharding_strategy != "SHARD_GRAD_OP"
        all_ranks, layers = self.mesh(), repeated_layers(model)
        for layer in layers:
            # A divided weight differs within a group, so it is sharded over groups, not over all ranks.
            divided = any(isinstance(weight, DTensor) for weight in layer.parameters())
            fully_shard(layer, mesh=groups if divided else all_ranks, reshard_after_forward=reshard, **options)
        inside = {part for layer in layers for part in layer.modules()}
        for part in model.modules():
            if part not in inside and any(isinstance(weight, DTensor) for weight in part.parameters(recurse=False)):
                # An output layer: VerifiedFSDPStrategy documents why it stays gathered.
                fully_shard(part, mesh=groups, reshard_after_forward=False, **options)
        fully_shard(model, mesh=all_ranks, **options)

    def _ranks(self) -> "DeviceMesh":
        """Return the mesh of all ranks: [groups, tensor], or [nodes, groups, tensor] with replicas between nodes."""
        from torch.distributed.device_mesh import init_device_mesh

        device, size = self.root_device.type, self.tensor_parallel
        if self.sharding_strategy == "HYBRID_SHARD":
            shape = (self.num_nodes, self.num_processes // size, size)
            return init_device_mesh(device, shape, mesh_dim_names=("nodes", "groups", "tensor"))
        return init_device_mesh(device, (self.world_size // size, size), mesh_dim_names=("groups", "tensor"))
