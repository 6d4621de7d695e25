"""Predicts the memory of a training step of a language model: runs the step on tensors without values."""

import math
from collections.abc import Callable
from contextlib import ExitStack, nullcontext
from copy import deepcopy
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from typing_extensions import override

from engine.lightning_internals.tensors import simulated_ranks, without_values
from engine.optim.optimizers import state_size
from engine.optim.parameter_groups import embedding_weights
from engine.strategies.fsdp import gathered_formats, shard_layers
from engine.system.allocation_counter import AllocationCounter
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.language_model_loading import model_config
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


class _Trace(NamedTuple):
    """Bytes of a model with few layers; each is linear in the number of layers."""

    weights: int
    gradients: int
    optimizer: int
    loading: int
    forward: int
    """Peaks without the optimizer's state: of the forward pass; of the backward pass through the output layer, through
    the decoder layers, and through the embeddings; of the optimizer's step."""
    output_backward: int
    layers_backward: int
    embeddings_backward: int
    update: int

    def extended(self, larger: "_Trace", layers: int) -> "_Trace":
        """Return the trace of a model with `layers` more layers; `larger` has _MORE layers more."""
        return _Trace(*(a + (b - a) * layers // _MORE for a, b in zip(self, larger, strict=True)))


def estimate_memory(
    settings: LanguageModelSettings, vocabulary: int, precision: Precision, work: Workload
) -> MemoryEstimate:
    """Return the memory of a training step, without the encoder of the other modality.

    The step of two models with few layers runs on tensors without values, and a counter follows their storages. All
    counts are linear in the number of layers. Nothing is loaded or allocated. Attention is a fused kernel.

    Args:
        settings: settings of the model; of `path`, only config.json is read.
        vocabulary: number of the tokenizer's tokens.
        precision: number formats.
        work: the step. With shards, this process must not be in a process group.

    Raises:
        ValueError: the model cannot be built from its config.
    """
    settings = replace(settings, compile=False)  # takes a minute, and no tensor has values
    config = model_config(settings, vocabulary)
    layers: int = config.get_text_config().num_hidden_layers
    fewest = _MIN_LAYERS if work.shards == 1 else _MIN_LAYERS_FSDP
    fewest += settings.last_n_layers if settings.trainable == "last_n_layers" else 0
    if layers <= fewest + _MORE:
        traced = _trace(config, settings, precision, work)
    else:
        smaller, larger = (
            _trace(_replace_layers(config, number), settings, precision, work) for number in (fewest, fewest + _MORE)
        )
        traced = smaller.extended(larger, layers - fewest)  # two traced models give the line through all depths
    peaks = traced[4:]
    if work.cpu_offload:
        return MemoryEstimate(0, 0, 0, max(peaks[:-1]) - traced.weights, traced.loading)
    activations = max(0, max(peaks) - traced.weights - traced.gradients)
    return MemoryEstimate(traced.weights, traced.gradients, traced.optimizer, activations, traced.loading)


def _replace_layers(config: Any, number: int) -> Any:
    resized = deepcopy(config)
    text = resized.get_text_config()
    text.num_hidden_layers = number
    if getattr(text, "layer_types", None):
        text.layer_types = text.layer_types[:number]
    return resized


def _trace(config: Any, settings: LanguageModelSettings, precision: Precision, work: Workload) -> _Trace:
    """Run a step of the model on tensors without values."""
    model = _StepLoss(config, settings, precision)
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
        _run_step(model, trained, torch.empty((work.rows, work.tokens), dtype=torch.long), precision, counter)
    embeddings = embedding_weights(model)
    state = sum(
        state_size(shard.numel(), work.state_bytes, work.in_blocks, parameter in embeddings)
        for parameter, shard in zip(trained, shards, strict=True)
    )
    # AdamW computes the root of the second moment beside it.
    roots = [4 * shard.numel() for shard in shards] if work.state_bytes == 8 else []
    update = weights + gradients + (sum(roots) if work.foreach else max(roots, default=0))
    forward, output, layers, embedded = counter.peaks[-4:]  # as `_run_step` and its hooks mark them
    return _Trace(
        weights=weights,
        gradients=gradients,
        optimizer=state,
        loading=model.loading,
        forward=forward,
        output_backward=output,
        layers_backward=layers,
        embeddings_backward=embedded,
        update=update,
    )


class _StepLoss(nn.Module):
    """The loss of a micro-batch whose tokens are all supervised."""

    def __init__(self, config: Any, settings: LanguageModelSettings, precision: Precision) -> None:
        super().__init__()
        from transformers import AutoModelForCausalLM

        kind = precision.frozen if settings.trainable in ("none", "lora") else precision.trained
        # flash_attention_2 takes the memory of sdpa, and needs a GPU.
        attention = "eager" if settings.attention == "eager" else "sdpa"
        with torch.device("meta"):
            network = AutoModelForCausalLM.from_config(config, dtype=kind, attn_implementation=attention)
        self.loading = sum(parameter.nbytes for parameter in network.parameters())
        self.language_model = LanguageModel(settings, 1, precision, network=network.train())

    @override
    def forward(self, tokens: Tensor, on_gradient: Callable[[Tensor], None]) -> Tensor:
        """Return the loss, given tokens [R, L]; `on_gradient` gets the gradients of the states and the embeddings."""
        model = self.language_model
        embeddings = model.embed(tokens)
        if not embeddings.requires_grad:  # the features of the other modality are trained
            embeddings = embeddings.detach().requires_grad_()
        states = model.hidden_states(embeddings, tokens)
        for each in (embeddings, states):
            each.register_hook(on_gradient)
        # `terms` selects the supervised tokens, which depends on values.
        states, targets = (each.flatten(0, 1).clone() for each in (states[:, :-1], tokens[:, 1:]))
        if model.settings.loss_kernel == "liger":  # it has the logits of a chunk at a time, here of the first
            chunk = _liger_chunk(len(states), model.hidden_size, model.causal_lm.config.get_text_config().vocab_size)
            states, targets = states[:chunk], targets[:chunk]
        return model.supervised_terms(states, targets).mean()


def _liger_chunk(tokens: int, width: int, vocabulary: int) -> int:
    """Return the number of tokens whose logits Liger has at a time: they take about as much as all states."""
    return min(tokens, 1 << (math.ceil(tokens / math.ceil(vocabulary / width)) - 1).bit_length())


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
    model: _StepLoss, trained: list[nn.Parameter], tokens: Tensor, precision: Precision, counter: AllocationCounter
) -> None:
    """Run both passes as Lightning does, which frees the gradients of the step before after the forward pass."""
    counter.mark()
    with nullcontext() if precision.autocast is None else torch.autocast("cpu", precision.autocast):
        loss = model(tokens, lambda gradient: counter.mark())
    for parameter in trained:
        parameter.grad = None
    counter.mark()
    loss.backward()
    counter.mark()
