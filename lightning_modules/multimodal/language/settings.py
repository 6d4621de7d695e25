"""Defines the settings of the language model."""

from dataclasses import dataclass, field
from typing import Any, Literal

from engine.number_check import check_number
from lightning_modules.multimodal.language.quantization import Quantization

Trainable = Literal["none", "lora", "full", "last_n_layers"]
AttentionKind = Literal["sdpa", "eager", "flash_attention_2", "flex_attention"]
LossKernel = Literal["torch", "liger"]


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al., ICLR 2022), by peft.

    Args:
        rank: rank of each adapter.
        alpha: scale of an adapter's output, times the rank.
        dropout: share of the adapters' inputs dropped in training.
        target_modules: names of the layers with an adapter; `all-linear` is all but the output layer, null is peft's
            default for the architecture.
        bias: which biases train with the adapters.
        use_rslora: scale adapters by alpha / sqrt(rank), as rsLoRA does (arXiv 2312.03732), instead of alpha / rank.
        use_dora: train the magnitudes of a weight's columns separately from their directions, as DoRA does
            (arXiv 2402.09353).
    """

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: str | list[str] | None = "all-linear"
    bias: Literal["none", "all", "lora_only"] = "none"
    use_rslora: bool = False
    use_dora: bool = False


@dataclass(frozen=True)
class LanguageModelSettings:
    """A causal language model of transformers: pretrained (`path`) or with random weights (`config`).

    Args:
        path: name on the Hugging Face hub or local directory of a pretrained model.
        config: `model_type` and sizes of a model with random weights, such as {model_type: qwen2, hidden_size: 128,
            num_hidden_layers: 3, ...}; its vocabulary is the tokenizer's.
        embedding_scale: with `config`: factor of the initial token embeddings. Without it the first layer's output
            drowns them, and a small model learns late, if ever, to find in a text what a question asks for. Needs
            tie_word_embeddings false.
        trainable: trainable weights: `none`, `lora` (adapters), `full`, or `last_n_layers`.
        last_n_layers: number of trainable decoder layers under `last_n_layers`.
        lora: settings of the adapters under `lora`.
        quantize: format of the frozen weights of the decoder's linear layers: `nf4` (4 bits, QLoRA) or `int8`. Needs
            trainable `lora` or `none`. `none` keeps the format of `trainer.precision`.
        double_quantize: quantize the scales of `nf4`, too: 4.13 bits a weight instead of 4.5.
        attention: implementation of attention; all keep packed chats apart. `flex_attention` skips the blocks of a row
            in which no chat attends to itself; it trains on CUDA only, and compiles at the first step.
        loss_kernel: implementation of the output layer with cross-entropy: `torch`, or `liger` on CUDA, which never has
            the logits of all tokens in memory (pip install liger-kernel).
        activation_checkpointing: keep only the states between layers, and recompute the others in the backward pass:
            less memory, about a third more time.
        compile: compile the decoder layers with torch.compile, once for any length. It takes a minute at the start;
            generation is not compiled.
    """

    path: str | None = None
    config: dict[str, Any] | None = None
    embedding_scale: float = 1.0
    trainable: Trainable = "full"
    last_n_layers: int = 2
    lora: LoraSettings = field(default_factory=LoraSettings)
    quantize: Quantization | Literal["none"] = "none"
    double_quantize: bool = True
    attention: AttentionKind = "sdpa"
    loss_kernel: LossKernel = "torch"
    activation_checkpointing: bool = False
    compile: bool = False

    def check(self) -> None:
        """Raise ValueError if the settings contradict each other.

        Not in __post_init__, because jsonargparse would bury the message.
        """
        if (self.path is None) == (self.config is None):
            raise ValueError(
                "language_model takes either path (a pretrained model) or config (one with random weights); "
                + ("neither is" if self.path is None else "both are")
                + " given"
            )
        # Pretrained embeddings fit the layers behind them; only random ones may be scaled.
        if self.embedding_scale <= 0 or (self.embedding_scale != 1 and self.config is None):
            raise ValueError(
                f"language_model.embedding_scale is {self.embedding_scale}; expected a number above 0, and 1 for a "
                "pretrained model (path)"
            )
        if self.config is not None and self.trainable == "none":
            raise ValueError(
                "language_model.trainable is none, but a model from a config has random weights, and learns nothing "
                "when frozen. Set language_model.path, or train it (trainable: full)"
            )
        if self.trainable == "last_n_layers":
            check_number("language_model.last_n_layers", self.last_n_layers, at_least=1)
        if self.quantize != "none" and self.trainable not in ("lora", "none"):
            raise ValueError(
                f"language_model.quantize is {self.quantize}, but trainable is {self.trainable}: weights in few bits "
                "cannot train. Set language_model.trainable to lora, which trains adapters beside them, or quantize to "
                "none"
            )
        if self.attention == "flex_attention" and self.compile:
            raise ValueError(
                "language_model.attention is flex_attention, which is compiled by itself, but compile is true, for "
                "whole layers. Set language_model.compile to false, or attention to sdpa"
            )
        check_number("language_model.lora.rank", self.lora.rank, at_least=1)
        check_number("language_model.lora.alpha", self.lora.alpha, above=0)
        check_number("language_model.lora.dropout", self.lora.dropout, at_least=0, below=1)
