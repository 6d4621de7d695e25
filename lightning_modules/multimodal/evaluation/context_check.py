"""Refuses chats that are longer than the context of the language model."""

from collections.abc import Callable, Iterable
from typing import Any

from datamodules.multimodal.batch import Prompts, TokenRows


def context_length(config: Any) -> int | None:
    """Return the positions that a language model is made for, after the scaling of RoPE; None if there is no limit.

    Some configs state the positions before the scaling, others (Gemma 3) after it. Where a config does not say which,
    the positions are taken for those before: a limit that is too high only costs time.

    Args:
        config: config of a model of transformers.
    """
    text_config = config.get_text_config()
    positions = getattr(text_config, "max_position_embeddings", None)
    if not isinstance(positions, int):
        return None
    rope = getattr(text_config, "rope_parameters", None) or getattr(text_config, "rope_scaling", None) or {}
    longest = positions
    for scaling in (rope, *rope.values()):  # one for all layers, or one for each kind of layers
        if isinstance(scaling, dict) and scaling.get("factor"):
            original = scaling.get("original_max_position_embeddings") or positions
            longest = max(longest, int(original * scaling["factor"]))
    return longest


def check_context(batch: Iterable[Any], positions: int | None, name_of: Callable[[int], str]) -> None:
    """Check the chats and prompts of an evaluation batch, before the model reads them.

    Tokens that the model generates after a prompt are not counted.

    Args:
        batch: a batch with TokenRows of one chat per row, or Prompts, among its fields.
        positions: positions of the language model; None for no limit.
        name_of: returns the name of a sample, for the message.

    Raises:
        ValueError: a chat has more tokens than the model has positions. This is not a BadSampleError, as in training:
            the limit is the model's, so `on_bad_sample: skip` does not hide it.
    """
    for part in batch:
        # The width of a batch is known without waiting for the device.
        if positions is None or not isinstance(part, Prompts | TokenRows) or part.tokens.shape[1] <= positions:
            continue
        lengths = part.mask.sum(dim=1) if isinstance(part, Prompts) else part.lengths
        # A row of padding alone has no sample.
        for sample, tokens in zip(part.samples.tolist(), lengths.tolist(), strict=False):
            if tokens > positions:
                raise ValueError(
                    f"sample {name_of(sample)}: {tokens:,} tokens, images included, but the language model has "
                    f"{positions:,} positions; shorten the text, or give fewer or smaller images"
                )
