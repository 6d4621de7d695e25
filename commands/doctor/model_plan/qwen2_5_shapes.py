"""Lists the sizes of the models of Qwen2.5 (arXiv 2412.15115, and the config.json of each model on the hub)."""

from typing import Any, NamedTuple


class Shape(NamedTuple):
    """Sizes of a model in the order of the table below."""

    hidden_size: int
    intermediate_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    vocabulary: int
    tie_word_embeddings: bool

    def config(self) -> dict[str, Any]:
        """Return `language_model.config` of a model with these sizes."""
        sizes = self._asdict()
        del sizes["vocabulary"]
        return {"model_type": "qwen2", **sizes}


QWEN2_5 = {
    "0.5B": Shape(896, 4864, 24, 14, 2, 151_936, True),
    "3B": Shape(2048, 11_008, 36, 16, 2, 151_936, True),
    "7B": Shape(3584, 18_944, 28, 28, 4, 152_064, False),
    "14B": Shape(5120, 13_824, 48, 40, 8, 152_064, False),
    "32B": Shape(5120, 27_648, 64, 40, 8, 152_064, False),
    "72B": Shape(8192, 29_568, 80, 64, 8, 152_064, False),
}
