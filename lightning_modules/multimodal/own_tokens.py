"""Whether tokens mean to a pretrained language model what they meant when it was trained; else it would read noise."""

import json
from collections.abc import Mapping
from pathlib import Path


def require_own_tokens(path: str, folder: Path, tokenizer: str | None, known: Mapping[str, int]) -> None:
    """Compares the run's tokenizer with the one beside the model's weights.

    Where there is none beside them, all that is known is that it was not the built-in one.

    Args:
        path: the model, as the config names it.
        folder: its files.
        tokenizer: the run's, as the config names it; None is the built-in one.
        known: its tokens with their numbers.

    Raises:
        ValueError: tokens of the model's tokenizer have other numbers in the run's, or none.
    """
    file, advice = folder / "tokenizer.json", f"Set data.init_args.tokenizer to {path}"
    if not file.is_file():
        if tokenizer is None:
            raise ValueError(f"data.init_args.tokenizer is null: {path} knows nothing of the built-in one. {advice}")
        return
    vocabulary = json.loads(file.read_text(encoding="utf-8"))["model"]["vocab"]
    if not isinstance(vocabulary, dict):  # of a unigram model: [token, score], token after token
        vocabulary = {token: place for place, (token, _) in enumerate(vocabulary)}
    others = [token for token, number in vocabulary.items() if known.get(token) != number]
    if others:
        raise ValueError(
            f"data.init_args.tokenizer is {tokenizer or 'null'}, but language_model.path {path} has a tokenizer of its "
            f"own, in which {len(others):,} of {len(vocabulary):,} tokens have other numbers ({others[0]!r} is "
            f"{vocabulary[others[0]]}, not {known.get(others[0])}). {advice}"
        )
