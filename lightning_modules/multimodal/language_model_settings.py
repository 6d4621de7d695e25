"""What a config says about the language model."""

from dataclasses import dataclass, field
from typing import Any, Literal

Trainable = Literal["none", "lora", "full", "last_n_layers"]
AttentionKind = Literal["sdpa", "eager", "flash_attention_2"]


@dataclass(frozen=True)
class LoraSettings:
    """Low-rank adapters (Hu et al., ICLR 2022), by peft.

    Args:
        rank: of the two factors of each adapter.
        alpha: an adapter's output is scaled by alpha / rank.
        dropout: share of the adapters' inputs dropped in training.
        target_modules: names of the layers that get an adapter; `all-linear` is all but the output layer, null what peft has chosen for the architecture.
        bias: which biases train with the adapters.
    """  # noqa: E501

    rank: int = 16
    alpha: float = 32.0
    dropout: float = 0.0
    target_modules: str | list[str] | None = "all-linear"
    bias: Literal["none", "all", "lora_only"] = "none"


@dataclass(frozen=True)
class LanguageModelSettings:
    """Any causal language model of transformers: pretrained (`path`) or with random weights (`config`).

    Args:
        path: name on the Hugging Face hub or local directory of a pretrained model.
        config: `model_type` and sizes of a model with random weights, such as {model_type: qwen2, hidden_size: 128, num_hidden_layers: 3, ...}; its vocabulary is the tokenizer's.
        embedding_scale: with `config`: the tokens' embeddings begin so many times as large as the other weights. As small as these, they drown in what the first layer adds, and a small model learns late, if ever, to find in a text what is asked for. Needs tie_word_embeddings false.
        trainable: what trains: `none`, `lora` (adapters), `full`, or `last_n_layers`.
        last_n_layers: decoder layers that train under `last_n_layers`.
        lora: the adapters' settings under `lora`.
        attention: implementation; all three keep packed chats apart.
        activation_checkpointing: keep only the states between layers and compute the rest again in the backward pass: less memory, about a third more time.
        compile: compile the decoder layers with torch.compile, once for all of them and for any length; takes a minute at the start, and writing answers stays as it is.
    """  # noqa: E501

    path: str | None = None
    config: dict[str, Any] | None = None
    embedding_scale: float = 1.0
    trainable: Trainable = "full"
    last_n_layers: int = 2
    lora: LoraSettings = field(default_factory=LoraSettings)
    attention: AttentionKind = "sdpa"
    activation_checkpointing: bool = False
    compile: bool = False

    def check(self) -> None:
        """Raises ValueError when the settings contradict each other; jsonargparse would bury the message."""
        if (self.path is None) == (self.config is None):
            raise ValueError(
                "language_model takes either path (a pretrained model) or config (one with random weights); "
                + ("neither is" if self.path is None else "both are")
                + " given"
            )
        if self.embedding_scale <= 0 or (self.embedding_scale != 1 and self.config is None):
            raise ValueError(
                f"language_model.embedding_scale is {self.embedding_scale}; expected a number above 0, and 1 for a "
                "pretrained model (path), whose embeddings are what they are"
            )
        if self.config is not None and self.trainable == "none":
            raise ValueError(
                "language_model.trainable is none, but a model from a config has random weights, and frozen it cannot "
                "say a word: its perplexity stays at 334 after 200 steps (untrained 331), where one that is trained "
                "reaches 1.9 without seeing anything. Give language_model.path, or train it (trainable: full)"
            )
        if self.trainable == "last_n_layers" and self.last_n_layers < 1:
            raise ValueError(f"language_model.last_n_layers must be at least 1, got {self.last_n_layers}")
