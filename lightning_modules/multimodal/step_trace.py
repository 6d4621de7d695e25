"""Traces a training step of a language model on tensors without values, and predicts its memory from the trace."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from copy import deepcopy
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from engine.lightning_internals.tensors import simulated_ranks, without_values
from engine.optim.optimizers import state_size
from engine.optim.parameter_groups import embedding_weights
from engine.strategies.fsdp import gathered_formats, shard_layers
from engine.system.allocation_counter import AllocationCounter
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import Precision
from lightning_modules.multimodal.language.quantization import dequantize, quantize
from lightning_modules.multimodal.language.settings import LanguageModelSettings

_MIN_LAYERS, _MIN_LAYERS_FSDP = 2, 4
"""Layers of the smaller of the two models that are traced. FSDP gathers up to three layers at once."""
_MORE = 2
"""Additional layers of the larger model; two, as layers of two kinds may alternate."""


class Workload(NamedTuple):
    """Settings of a training step that its memory depends on, besides the model's settings."""

    tokens: int
    """Positions of a row, padding included; all are taken as supervised."""
    rows: int = 1
    """Rows of a micro-batch."""
    state_bytes: int = 8
    """Bytes of the optimizer's state for each trained number: 8 of AdamW, 2 of 8-bit AdamW, 0 with offload."""
    in_blocks: bool = False
    """Whether the state is quantized in blocks, as that of 8-bit AdamW."""
    shards: int = 1
    """Ranks over which FSDP shards weights, gradients and state."""
    cpu_offload: bool = False
    """Whether FSDP keeps the shards in host memory."""
    foreach: bool = False
    """Whether the optimizer updates all tensors at once, as torch's AdamW does on a GPU, with a copy of a moment."""


class MemoryEstimate(NamedTuple):
    """Bytes of device memory of a rank, by use."""

    weights: int
    gradients: int
    optimizer: int
    activations: int
    """What the peak of a step needs beside these: activations, logits, temporary and gathered tensors."""
    loading: int
    """Of the host, while the weights are loaded before they are quantized."""

    @property
    def total(self) -> int:
        """Bytes of the device at the peak of a step."""
        return self.weights + self.gradients + self.optimizer + self.activations


class Trace(NamedTuple):
    """Bytes of a model with few layers; each is linear in the number of layers."""

    weights: int
    gradients: int
    optimizer: int
    loading: int
    peaks: tuple[int, ...]
    """Peaks without the optimizer's state: of the phases of the step, see `TracedStep`, then of the optimizer's step.
    The maximum of all is not linear, as another phase may have it in a deeper model."""

    def extended(self, larger: "Trace", layers: int) -> "Trace":
        """Return the trace of a model with `layers` more layers; `larger` has _MORE layers more."""

        def line(small: int, large: int) -> int:
            return small + (large - small) * layers // _MORE

        return Trace(
            line(self.weights, larger.weights),
            line(self.gradients, larger.gradients),
            line(self.optimizer, larger.optimizer),
            line(self.loading, larger.loading),
            tuple(line(*pair) for pair in zip(self.peaks, larger.peaks, strict=True)),
        )


class TracedStep(nn.Module, ABC):
    """A model whose step is traced. `forward` returns the loss, given the batch and a function that ends a phase.

    The phases: the forward pass, in one or several, of which `forward` ends all but the last; the backward pass through
    the output layer, through the decoder layers, and through what is before them. Hooks of gradients, which `forward`
    registers, end the first two phases of the backward pass.

    Args:
        language_model: the model, on the device `meta`.
        loading: bytes of its weights before they are quantized.
    """

    phases = 4
    """Number of phases."""

    def __init__(self, language_model: LanguageModel, loading: int) -> None:
        super().__init__()
        self.language_model, self.loading = language_model, loading

    @abstractmethod
    def batch(self) -> Any:
        """Return the batch; called where tensors have no values."""

    def context(self) -> AbstractContextManager[Any]:
        """Return the context of the step, inside the one in which tensors have no values."""
        return nullcontext()


def estimate_step(
    config: Any,
    build: Callable[[Any], TracedStep],
    settings: LanguageModelSettings,
    precision: Precision,
    work: Workload,
    fewest: int = _MIN_LAYERS,
) -> MemoryEstimate:
    """Return the memory of a step of the model that `build` makes of a config.

    Args:
        config: config of the model; `build` gets it with fewer decoder layers.
        build: makes the step. Its counts are linear in the number of decoder layers.
        settings: settings of the language model.
        precision: number formats.
        work: the step.
        fewest: decoder layers of the smaller of two traced models.
    """
    layers: int = config.get_text_config().num_hidden_layers
    fewest = fewest if work.shards == 1 else max(fewest, _MIN_LAYERS_FSDP)
    fewest += settings.last_n_layers if settings.trainable == "last_n_layers" else 0

    def trace(resized: Any) -> Trace:
        return _trace(build(resized), settings, precision, work)

    if layers <= fewest + _MORE:
        traced = trace(config)
    else:
        smaller, larger = (trace(_replace_layers(config, number)) for number in (fewest, fewest + _MORE))
        traced = smaller.extended(larger, layers - fewest)  # two traced models give the line through all depths
    if work.cpu_offload:
        return MemoryEstimate(0, 0, 0, max(traced.peaks[:-1]) - traced.weights, traced.loading)
    activations = max(0, max(traced.peaks) - traced.weights - traced.gradients)
    return MemoryEstimate(traced.weights, traced.gradients, traced.optimizer, activations, traced.loading)


def _replace_layers(config: Any, number: int) -> Any:
    resized = deepcopy(config)
    text = resized.get_text_config()
    text.num_hidden_layers = number
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:number]
    return resized


def _trace(model: TracedStep, settings: LanguageModelSettings, precision: Precision, work: Workload) -> Trace:
    """Run a step of the model on tensors without values."""
    if settings.quantize != "none":  # fills a cache of constants, which must have values
        dequantize(quantize(torch.zeros(1, 64), settings.quantize, True), torch.Size((1, 64)), torch.bfloat16)
    with ExitStack() as stack:
        mesh: Any = None
        if work.shards > 1:
            from torch.distributed.device_mesh import init_device_mesh

            stack.enter_context(simulated_ranks(work.shards))
            mesh = init_device_mesh("cpu", (work.shards,))
        # After the mesh, whose ranks are real integers, and before the weights get storages.
        stack.enter_context(without_values())
        counter = stack.enter_context(AllocationCounter(resizable=work.shards > 1))
        _replace_by_storages(model)
        if mesh is not None:
            shard_layers(model, mesh, mp_policy=gathered_formats(precision.autocast is not None))
        weights = counter.now
        trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
        for parameter in trained:
            if work.cpu_offload:
                parameter.register_post_accumulate_grad_hook(_drop_gradient)
            else:
                parameter.grad = torch.empty_like(parameter)  # of the step before; the forward pass runs beside them
        shards = [parameter.to_local() if isinstance(parameter, DTensor) else parameter for parameter in trained]
        gradients = sum(shard.nbytes for shard in shards)
        batch = model.batch()
        stack.enter_context(model.context())
        _run_step(model, trained, batch, precision, counter)
    embeddings = embedding_weights(model)
    state = sum(
        state_size(shard.numel(), work.state_bytes, work.in_blocks, parameter in embeddings)
        for parameter, shard in zip(trained, shards, strict=True)
    )
    # AdamW computes the root of the second moment beside it.
    roots = [4 * shard.numel() for shard in shards] if work.state_bytes == 8 else []
    update = weights + gradients + (sum(roots) if work.foreach else max(roots, default=0))
    return Trace(weights, gradients, state, model.loading, (*counter.peaks[-model.phases :], update))


def _replace_by_storages(model: nn.Module) -> None:
    """Replace the tensors of a model by tensors without values on the CPU; tied weights stay tied."""
    replacements: dict[int, tuple[Tensor, Tensor]] = {}
    for module in model.modules():
        tensors = [*module.named_parameters(recurse=False), *module.named_buffers(recurse=False)]
        for name, old in tensors:
            if id(old) not in replacements:
                values: Tensor = torch.empty_like(old, device="cpu", requires_grad=False)
                new = nn.Parameter(values, old.requires_grad) if isinstance(old, nn.Parameter) else values
                replacements[id(old)] = old, new  # keep the old storage alive, or a new object could get its id
            setattr(module, name, replacements[id(old)][1])


def _drop_gradient(parameter: Tensor) -> None:
    """Free a gradient's shard, which FSDP moves to the host."""
    parameter.grad = None


def _run_step(
    model: TracedStep, trained: list[nn.Parameter], batch: Any, precision: Precision, counter: AllocationCounter
) -> None:
    """Run both passes as Lightning does, which frees the gradients of the step before after the forward pass."""
    counter.mark()
    before = len(counter.peaks)
    with nullcontext() if precision.autocast is None else torch.autocast("cpu", precision.autocast):
        loss = model(batch, counter.mark)
    for parameter in trained:
        parameter.grad = None
    counter.mark()
    loss.backward()
    while len(counter.peaks) < before + model.phases:  # nothing before the decoder layers may have gradients
        counter.mark()
