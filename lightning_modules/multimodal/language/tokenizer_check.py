"""Checks that the run uses the tokenizer of the pretrained language model."""

import json
from collections.abc import Mapping
from pathlib import Path


def require_own_tokens(path: str, folder: Path, tokenizer: str | None, known: Mapping[str, int]) -> None:
    """Compare the run's tokenizer with the tokenizer beside the model's weights.

    Without a tokenizer beside the weights, only the built-in tokenizer is known to be wrong.

    Args:
        path: the model's name in the config.
        folder: the model's files.
        tokenizer: name of the run's tokenizer in the config; None: the built-in tokenizer.
        known: ids of its tokens.

    Raises:
        ValueError: tokens of the model's tokenizer have other ids in the run's, or are missing.
    """
    file, advice = folder / "tokenizer.json", f"Set data.init_args.tokenizer to {path}"
    if not file.is_file():
        if tokenizer is None:
            raise ValueError(f"data.init_args.tokenizer is null, but {path} was not trained with it. {advice}")
        return
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    if not isinstance(vocabulary, dict):  # a unigram model lists [token, score]
        vocabulary = {token: index for index, (token, _) in enumerate(vocabulary)}
    # The run's tokenizer may have more tokens, as the placeholder; they get embeddings of their own.
    differ = [token for token, number in vocabulary.items() if known.get(token) != number]
    if differ:
        raise ValueError(
            f"data.init_args.tokenizer is {tokenizer or 'null'}, but language_model.path {path} has a tokenizer of its "
            f"own, in which {len(differ):,} of {len(vocabulary):,} tokens have other ids ({differ[0]!r} is "
            f"{vocabulary[differ[0]]}, not {known.get(differ[0])}). {advice}"
        )
