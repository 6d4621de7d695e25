"""Implements AdamW with an 8-bit state for weights sharded over ranks, with the arithmetic of bitsandbytes.

bitsandbytes quantizes the state of a whole weight in blocks of 256 elements with a common scale (Dettmers et al.,
"8-bit Optimizers via Block-wise Quantization", ICLR 2022). Here a rank has some rows of the weight, so a block may lie
on two or more ranks. They agree on the scale of each block, so the codes equal the codes of the whole weight, and a
checkpoint fits any number of ranks.
"""

import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor, Shard
from torch.nn.functional import pad
from torch.optim import Optimizer
from typing_extensions import override

from engine.optim.eight_bit_state import BLOCK, MIN_QUANTIZED_ELEMENTS
from engine.system.bitsandbytes_import import import_bitsandbytes

_MOMENTS = ("state1", "state2")


class ShardedEightBitAdamW(Optimizer):
    """AdamW for DTensors that are sharded by rows.

    The state of a weight has the names of bitsandbytes:

    - `step`: number of its steps, a tensor.
    - `state1`, `state2`: both moments, sharded as the weight. uint8, or float32 for small weights and embeddings.
    - `absmax1`, `absmax2`: [ceil(N / 256)] float32, scales of the blocks, whole on all ranks: 1/32 byte an element.
    - `qmap1`, `qmap2`: [256] float32, values of the codes.

    A step has one small all-reduce for each weight with 8 bits. All ranks must have a gradient of the same weights.

    Args:
        groups: parameter groups.
        full_precision: parameters whose state stays in 32 bits.
        lr: learning rate of groups that have none.
        betas: decay rates of the moments.
    """

    def __init__(
        self,
        groups: list[dict[str, Any]],
        full_precision: Collection[Tensor],
        lr: float,
        betas: tuple[float, float],
    ) -> None:
        super().__init__(groups, {"lr": lr, "betas": betas, "eps": 1e-8, "weight_decay": 1e-2})
        self._full_precision = set(full_precision)

    @torch.no_grad()
    @override
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    state = self.state[parameter] or self._new_state(parameter)
                    state["step"] += 1
                    update = _update_codes if state["state1"].dtype == torch.uint8 else _update_numbers
                    update(parameter, parameter.grad, state, group)
        return loss

    def _new_state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        in_8_bits = parameter.numel() >= MIN_QUANTIZED_ELEMENTS and parameter not in self._full_precision
        state = self.state[parameter]
        state["step"] = torch.tensor(0.0)
        for name in _MOMENTS:
            state[name] = torch.zeros_like(parameter, dtype=torch.uint8 if in_8_bits else torch.float32)
        if in_8_bits:
            device = _local(parameter).device
            for number, signed in ((1, True), (2, False)):  # the second moment is never negative
                state[f"absmax{number}"] = torch.zeros(math.ceil(parameter.numel() / BLOCK), device=device)
                state[f"qmap{number}"] = import_bitsandbytes().functional.create_dynamic_map(signed=signed).to(device)
        return state


# -- updates -----------------------------------------------------------------------------------------------------------


def _update_numbers(parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], group: dict[str, Any]) -> None:
    weight, (mean, square) = _local(parameter), (_local(state[name]) for name in _MOMENTS)
    if weight.numel():
        import_bitsandbytes().functional.optimizer_update_32bit(
            "adam", _local(gradient), weight, mean, group["betas"][0], group["eps"], int(state["step"]), group["lr"],
            square, group["betas"][1], weight_decay=group["weight_decay"],
        )  # fmt: skip


def _update_codes(parameter: Tensor, gradient: Tensor, state: Mapping[str, Tensor], group: dict[str, Any]) -> None:
    weight, part = _local(parameter), BlockPart.from_parameter(parameter)
    codes = [_local(state[name]) for name in _MOMENTS]
    # [2, blocks]: both moments in one tensor, for a single all-reduce.
    scales = torch.stack([state["absmax1"], state["absmax2"]])
    values = [state["qmap1"], state["qmap2"]]
    moments: list[Tensor] = []
    if weight.numel():
        # Each rank decodes its own elements, updates them in float32 and encodes them again.
        mean, square = moments = [part.dequantized(*each) for each in zip(codes, scales, values, strict=True)]
        _apply_adamw(
            weight, _local(gradient).float(), mean.view_as(weight), square.view_as(weight), int(state["step"]), group
        )
    # A block's scale is the largest magnitude on any rank that has a part of it. Blocks of other ranks count as 0 here,
    # so the maximum over the ranks also gives every rank the scales of all blocks.
    scales.zero_()
    for row, moment in zip(scales, moments, strict=False):
        row[part.first : part.last] = part.blocks(moment).abs().amax(1)
    _all_reduce_max(scales, parameter)
    state["absmax1"].copy_(scales[0])
    state["absmax2"].copy_(scales[1])
    # Encode with the common scales, so that a block that lies on two ranks has the codes of a whole block.
    for moment, target, row, code_values in zip(moments, codes, scales, values, strict=False):
        target.copy_(part.quantized(moment, row, code_values).view_as(target))


def _apply_adamw(
    weight: Tensor, gradient: Tensor, mean: Tensor, square: Tensor, step: int, group: Mapping[str, Any]
) -> None:
    """Update a weight and its moments in place, elementwise, in the order of operations of bitsandbytes."""
    (beta1, beta2), rate = group["betas"], group["lr"]
    # m <- b1 m + (1 - b1) g,  v <- b2 v + (1 - b2) g^2
    mean.mul_(beta1).add_(gradient, alpha=1 - beta1)
    square.mul_(beta2).addcmul_(gradient, gradient, value=1 - beta2)
    deviation = (square.sqrt() / math.sqrt(1 - beta2**step)).add_(group["eps"])
    # x <- (1 - r w) x - r (m / (1 - b1^t)) / (sqrt(v) / sqrt(1 - b2^t) + eps), in float32 for 16-bit weights, too
    moved = weight.float().mul_(1 - rate * group["weight_decay"])
    weight.copy_(moved.addcdiv_(mean, deviation, value=-rate / (1 - beta1**step)))


class BlockPart(NamedTuple):
    """The blocks of a flattened weight of which this rank has elements."""

    first: int
    """Number of the first block."""

    last: int
    """Number after the last block."""

    before: int
    """Elements of the first block that belong to the ranks before this rank."""

    after: int
    """Elements of the last block that belong to the ranks after this rank."""

    @classmethod
    def from_parameter(cls, parameter: Tensor) -> "BlockPart":
        """Return the part of a weight that this rank holds."""
        begin, size = _first_element(parameter), _local(parameter).numel()
        first, last = begin // BLOCK, math.ceil((begin + size) / BLOCK)
        return cls(first, last, begin - first * BLOCK, last * BLOCK - begin - size)

    def blocks(self, elements: Tensor) -> Tensor:
        """Return [M, 256], with zeros for elements of other ranks."""
        return pad(elements.reshape(-1), (self.before, self.after)).view(-1, BLOCK)

    def dequantized(self, codes: Tensor, scales: Tensor, values: Tensor) -> Tensor:
        """Return this rank's elements [n], float32.

        Args:
            codes: this rank's codes, n uint8.
            scales: [blocks of the whole weight] float32.
            values: [256] float32, values of the codes.
        """
        elements = import_bitsandbytes().functional.dequantize_blockwise(
            self.blocks(codes).view(-1), absmax=scales[self.first : self.last], code=values, blocksize=BLOCK
        )
        return elements[self.before : self.before + codes.numel()]

    def quantized(self, elements: Tensor, scales: Tensor, values: Tensor) -> Tensor:
        """Return the codes [n] of this rank's elements, for the scales of the whole blocks; see `dequantized`."""
        blocks = self.blocks(elements)
        # The kernel takes the largest magnitude of a block as its scale. It is put into an element of another rank.
        if self.before:
            blocks[0, 0] = scales[self.first]
        if self.after:
            blocks[-1, -1] = scales[self.last - 1]
        codes, _ = import_bitsandbytes().functional.quantize_blockwise(blocks.view(-1), code=values, blocksize=BLOCK)
        return codes[self.before : self.before + elements.numel()]


# -- shards ------------------------------------------------------------------------------------------------------------


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _sharded_dimension(tensor: DTensor) -> int:
    """Return the dimension of the mesh along which ranks have different rows; along the others they have replicas."""
    (dimension,) = (number for number, placement in enumerate(tensor.placements) if isinstance(placement, Shard))
    return dimension


def _first_element(tensor: Tensor) -> int:
    """Return the index of this rank's first element in the whole tensor, flattened."""
    if not isinstance(tensor, DTensor):
        return 0
    mesh, dimension = tensor.device_mesh, _sharded_dimension(tensor)
    rows = math.ceil(tensor.shape[0] / mesh.size(dimension))  # as torch.chunk
    return min(mesh.get_local_rank(dimension) * rows, tensor.shape[0]) * math.prod(tensor.shape[1:])


def _all_reduce_max(scales: Tensor, parameter: Tensor) -> None:
    if isinstance(parameter, DTensor):
        group = parameter.device_mesh.get_group(_sharded_dimension(parameter))
        torch.distributed.all_reduce(scales, torch.distributed.ReduceOp.MAX, group)
