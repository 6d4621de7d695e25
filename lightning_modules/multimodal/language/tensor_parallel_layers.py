"""Divides the layers of a language model over the ranks of a tensor-parallel group, by transformers' own plan.

Megatron-LM (Shoeybi et al. 2019, arXiv 1909.08053): the first layer of a pair is divided by outputs, such as heads, the
second by inputs, so that a pair needs a single all-reduce in each direction.
"""

from collections.abc import Callable
from fnmatch import fnmatchcase

from torch import nn
from torch.distributed.tensor import Replicate
from torch.distributed.tensor.parallel import ColwiseParallel, ParallelStyle, RowwiseParallel, SequenceParallel

from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.settings import LanguageModelSettings

_KEY = "trainer.strategy.init_args.tensor_parallel"

_STYLES: dict[str, Callable[[], ParallelStyle]] = {
    "colwise": ColwiseParallel,
    "colwise_gather_output": lambda: ColwiseParallel(output_layouts=Replicate()),
    "rowwise": RowwiseParallel,
    "rowwise_split_input": lambda: RowwiseParallel(input_layouts=Replicate()),
    # A norm of each head: further heads are further rows, so their axis may be any but the last.
    "replicated_with_grad_allreduce": lambda: SequenceParallel(sequence_dim=0, use_local_output=True),
}
"""torch's form of the styles in the plans of transformers."""


def divided_layers(model: LanguageModel, size: int) -> dict[nn.Module, ParallelStyle]:
    """Return the layers to divide over `size` ranks, and how.

    LoRA adapters are divided as their layers are: `lora_B` with the outputs, `lora_A` with the inputs. An output layer
    that shares its weight with the embeddings stays whole.

    Raises:
        ValueError: the model has no plan, or `size` does not divide its heads and widths, or a setting excludes it.
    """
    settings = model.settings
    _check_settings(settings, size)
    network, decoder = model.causal_lm, model.causal_lm.get_decoder()
    config = decoder.config
    plan: dict[str, str] = config.base_model_tp_plan or {}
    if not plan:
        raise ValueError(
            f"{_KEY} is {size}, but transformers has no plan that divides {config.model_type}. Set it to 1: FSDP shards"
            " any model"
        )
    layers: dict[nn.Module, ParallelStyle] = {}
    for name, layer in decoder.named_modules():
        # peft wraps an adapted layer and puts the original at `.base_layer`; the plan knows the original's name.
        plain = name.replace(".base_layer", "")
        # Patterns such as layers.*.self_attn.q_proj
        style = next((style for pattern, style in plan.items() if fnmatchcase(plain, pattern)), None)
        if style is not None and not isinstance(layer, nn.Linear) and hasattr(layer, "base_layer"):
            # The wrapper of peft itself has no weight; its base layer is met later under its own name.
            layers |= _divided_adapters(layer, style)
        elif style is not None:
            if style not in _STYLES:
                raise ValueError(
                    f"{_KEY} is {size}, but the plan of transformers for {config.model_type} divides {plain} by "
                    f"{style}, which Lockstep does not support. Set it to 1: FSDP shards any model"
                )
            layers[layer] = _STYLES[style]()
    _check_sizes(layers, config, size)
    # Divided by tokens, with logits gathered: the loss needs a softmax over the whole vocabulary. Shared with the
    # embeddings, the weight would be divided for the look-up as well.
    head = network.get_output_embeddings()
    if head.weight is not network.get_input_embeddings().weight and head.weight.shape[0] % size == 0:
        layers[head] = _STYLES["colwise_gather_output"]()
    return layers


def _divided_adapters(layer: nn.Module, style: str) -> dict[nn.Module, ParallelStyle]:
    """Return how the adapters of a layer of peft are divided."""
    # y = W x + B (A x). W divided by outputs divides B, W divided by inputs divides A; the other factor has only the
    # rank as its width, and stays whole.
    by_outputs = style.startswith("colwise")
    adapters = getattr(layer, "lora_B" if by_outputs else "lora_A", {})
    return {adapter: _STYLES[style]() for adapter in adapters.values()}


def _check_settings(settings: LanguageModelSettings, size: int) -> None:
    refused = [
        # The codes are not a matrix with rows and columns to divide.
        (settings.quantize != "none", f"quantize {settings.quantize}", "quantize none"),
        # DoRA divides by norms of the whole W + B A, which no rank holds.
        (settings.trainable == "lora" and settings.lora.use_dora, "lora.use_dora true", "lora.use_dora false"),
        (settings.compile, "compile true", "compile false"),
    ]
    for is_set, found, expected in refused:
        if is_set:
            raise ValueError(
                f"{_KEY} is {size}, which does not work with model.init_args.language_model.{found}. Set {expected}, "
                "or use --trainer.strategy ddp"
            )


def _check_sizes(layers: dict[nn.Module, ParallelStyle], config: object, size: int) -> None:
    """Raise ValueError if a group of ranks could not take equal shares of the heads or of a layer's width."""
    sizes = [(name, getattr(config, name, None)) for name in ("num_attention_heads", "num_key_value_heads")]
    sizes += [("width of a layer", width) for width in _divided_widths(layers)]
    for name, number in sizes:
        if number is not None and number % size:
            raise ValueError(
                f"{_KEY} is {size}, which does not divide the language model's {name}, {number}. Choose a divisor"
            )


def _divided_widths(layers: dict[nn.Module, ParallelStyle]) -> set[int]:
    linear = [(layer, style) for layer, style in layers.items() if isinstance(layer, nn.Linear)]
    return {layer.out_features if isinstance(style, ColwiseParallel) else layer.in_features for layer, style in linear}
