"""Provides tiny language models of three architectures."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.precision import precision_of
from lightning_modules.multimodal.language.settings import LanguageModelSettings

VOCABULARY = 120
SIZES = {
    "hidden_size": 32,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 48,
    "initializer_range": 0.1,  # far from uniform, so that a leak shows
    "tie_word_embeddings": True,
}
CONFIGS = {
    "qwen2": {"model_type": "qwen2", **SIZES},
    "qwen3": {"model_type": "qwen3", "head_dim": 8, **SIZES},
    "llama": {"model_type": "llama", **SIZES, "tie_word_embeddings": False},
}
Build = Callable[..., LanguageModel]


@pytest.fixture
def build() -> Build:
    """build(path or name in CONFIGS, trainable=..., ...): a language model, by default in fp32."""

    def built(source: str | Path = "qwen2", precision: str = "32-true", vocabulary: int = VOCABULARY, **settings):
        torch.manual_seed(1)
        where = {"config": CONFIGS[source]} if source in CONFIGS else {"path": str(source)}
        chosen = LanguageModelSettings(**where, **settings)
        return LanguageModel(chosen, vocabulary, precision_of(precision, has_bf16=True))

    return built


@pytest.fixture(scope="session")
def pretrained(tmp_path_factory) -> Path:
    """A directory as transformers writes it: Qwen2, in bf16 as the published models."""
    from transformers import AutoConfig, AutoModelForCausalLM

    torch.manual_seed(2)
    config = AutoConfig.for_model(**CONFIGS["qwen2"], vocab_size=VOCABULARY)
    folder = tmp_path_factory.mktemp("qwen2")
    AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).save_pretrained(folder)
    return folder
