"""Implements a linear layer with a frozen weight in 4 or 8 bits, and replaces a network's layers by it.

Adapters of peft treat it as any linear layer: `weight` is computed when it is read.
"""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from typing_extensions import override

from lightning_modules.multimodal.language.quantization import Quantization, QuantizedWeight, dequantize, quantize


class QuantizedLinear(nn.Linear):
    """A linear layer [..., in_features] -> [..., out_features] with a frozen weight in few bits.

    Its parameters are the integers of QuantizedWeight. So a checkpoint, a hash, a transfer to a device and the
    broadcast of DDP treat them as any frozen weight, and nothing quantizes a weight twice.

    Args:
        layer: layer whose weight is quantized. Its bias is kept.
        kind: see `quantization`.
        double: see `quantize`.
        device: where the weight is quantized; the result is on the layer's device.
    """

    def __init__(self, layer: nn.Linear, kind: Quantization, double: bool, device: torch.device) -> None:
        nn.Module.__init__(self)  # without the weight of nn.Linear
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.kind, self.double_quantized, self.dtype = kind, double, layer.weight.dtype
        self.register_parameter("bias", layer.bias)
        # Quantized where it is fast, a GPU, and stored where the layer is: Lightning moves the model later.
        stored = quantize(layer.weight.to(device), kind, double)
        for name, tensor in zip(QuantizedWeight._fields, stored, strict=True):
            parameter = None if tensor is None else nn.Parameter(tensor.to(layer.weight.device), requires_grad=False)
            self.register_parameter(name, parameter)
        # Parameters are counted as the weight that they stand for.
        self.codes.logical_shape = layer.weight.shape  # type: ignore[attr-defined]  # ours, not torch's
        for scales in (self.scales, self.scale_scales):
            if scales is not None:
                scales.logical_shape = torch.Size([0])  # type: ignore[attr-defined]  # ours, not torch's

    codes: nn.Parameter
    scales: nn.Parameter
    scale_scales: nn.Parameter | None

    @property
    def stored(self) -> QuantizedWeight:
        """The quantized weight."""
        return QuantizedWeight(self.codes, self.scales, self.scale_scales)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]  # computed, where nn.Linear keeps a parameter
        """The weight [out_features, in_features] in the format that it had before."""
        return self.dequantized(self.dtype)

    def dequantized(self, dtype: torch.dtype) -> Tensor:
        """Return the weight [out_features, in_features] in a number format."""
        return dequantize(self.stored, torch.Size((self.out_features, self.in_features)), dtype)

    @torch.no_grad()
    def store(self, weight: Tensor) -> None:
        """Quantize another weight [out_features, in_features] into this layer."""
        stored = quantize(weight.to(self.codes.device, self.dtype), self.kind, self.double_quantized)
        for current, new in zip(self.stored, stored, strict=True):
            if current is not None and new is not None:
                # In place, as load_state_dict does: DDP and checkpoints refer to these tensors.
                current.copy_(new)

    def to_linear(self) -> nn.Linear:
        """Return a linear layer with the dequantized weight, frozen, and this layer's bias."""
        # On `meta`, so that no weight is allocated and initialized only to be replaced.
        layer = nn.Linear(self.in_features, self.out_features, bias=False, device="meta")
        layer.weight = nn.Parameter(self.weight, requires_grad=False)
        layer.bias = self.bias
        return layer

    @override
    def forward(self, input: Tensor) -> Tensor:
        """Compute in autocast's dtype, else in the input's dtype; gradients are as for the dequantized weight."""
        # autocast does not cast the inputs of a custom autograd function, so the input is cast here.
        kind = input.device.type
        dtype = torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else input.dtype
        bias = None if self.bias is None else self.bias.to(dtype)
        return _Product.apply(input.to(dtype), self, bias)

    @override
    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, {self.kind}"


class _Product(torch.autograd.Function):
    """Product with the dequantized weight, which the backward pass computes again instead of keeping it."""

    @staticmethod
    def forward(ctx: Any, states: Tensor, layer: QuantizedLinear, bias: Tensor | None) -> Tensor:
        # The layer and not its dequantized weight, which takes four times the memory in 16 bits.
        ctx.layer = layer
        return F.linear(states, layer.dequantized(states.dtype), bias)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, None, Tensor | None]:
        (grad,) = grads
        # y = x W^T + b, so dx = dy W and db = the sum of dy over all leading axes; W is frozen.
        grad_states = grad @ ctx.layer.dequantized(grad.dtype) if ctx.needs_input_grad[0] else None
        grad_bias = grad.flatten(0, -2).sum(dim=0) if ctx.needs_input_grad[2] else None
        return grad_states, None, grad_bias


def quantize_linear_layers(
    network: nn.Module,
    kind: Quantization,
    double: bool = True,
    chosen: Callable[[str, nn.Linear], bool] = lambda name, layer: True,
    device: torch.device | None = None,
) -> int:
    """Quantize linear layers of a network, in place, one at a time to bound the memory.

    Args:
        network: any network, not yet with adapters.
        kind: `nf4` or `int8`.
        double: quantize the scales of nf4 as well.
        chosen: whether to replace the layer of a name. A layer whose weight is shared, as an output layer's may be,
            must not be chosen.
        device: where weights are quantized; by default where each is. The bits do not depend on it.

    Returns:
        The number of layers replaced.
    """
    layers = [
        (parent, key, layer)
        # A list, because replacing layers while the generator walks over the network would change what it finds.
        for prefix, parent in network.named_modules()
        for key, layer in parent.named_children()
        # The exact type: subclasses, as peft's and QuantizedLinear itself, compute something else.
        if type(layer) is nn.Linear and chosen(f"{prefix}.{key}".lstrip("."), layer)
    ]
    for parent, key, layer in layers:
        setattr(parent, key, QuantizedLinear(layer, kind, double, device or layer.weight.device))
        layer.weight = nn.Parameter(torch.empty(0))  # `layers` holds the layer, its memory is free
    return len(layers)


def dequantize_linear_layers(network: nn.Module) -> None:
    """Replace quantized layers by plain layers with dequantized weights, in place, also inside adapters of peft."""
    for parent in list(network.modules()):
        for key, layer in parent.named_children():
            if isinstance(layer, QuantizedLinear):
                setattr(parent, key, layer.to_linear())


def quantized_layers(network: nn.Module) -> Iterator[tuple[str, QuantizedLinear]]:
    """Yield the quantized layers by name."""
    for name, layer in network.named_modules():
        if isinstance(layer, QuantizedLinear):
            yield name, layer
