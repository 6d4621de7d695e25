"""The tokenizer of a run, with what chats need to know about it."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.multimodal.tiny_tokenizer import PLACEHOLDER, train_tiny_tokenizer
from engine.hub import why_unreachable

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerFast


class ChatTokenizer:
    """A tokenizer of transformers, its chat template, and the tokens with a part of their own.

    A tokenizer without the placeholder token gets it, as one more special token. Its id often lies within the language
    model's embedding all the same, as many models have more rows than tokens (Qwen2.5-0.5B: 151936 for 151665): a model
    needs new rows only if it has fewer than `vocabulary_size`.

    Raises:
        ValueError: the tokenizer has no chat template, or one that ends the assistant's turn without a special token,
            so that a model would never learn to stop.
    """

    placeholder: int
    """The token that stands where a feature vector goes."""

    pad: int
    """The token in rows' padding; of a tokenizer without one the end of a turn, as it is masked anyway."""

    end_of_turn: int
    """The token with which the assistant stops."""

    def __init__(self, tokenizer: "PreTrainedTokenizerFast", name: str, *, builtin: bool = False) -> None:
        self.tokenizer, self.name, self.builtin = tokenizer, name, builtin
        if not tokenizer.is_fast:
            raise ValueError(f"tokenizer {name}: no tokenizer.json, which is needed to tokenise fast enough")
        if not isinstance(tokenizer.chat_template, str):
            raise ValueError(
                f"tokenizer {name}: expected one chat template, found {_kind(tokenizer.chat_template)}. "
                "Take the instruct variant of the model, or put a chat_template.jinja in its directory"
            )
        if PLACEHOLDER not in tokenizer.get_vocab():
            tokenizer.add_special_tokens({"extra_special_tokens": [PLACEHOLDER]}, replace_extra_special_tokens=False)
        # A tokenizer.json may have been saved with them on.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        self.placeholder = tokenizer.convert_tokens_to_ids(PLACEHOLDER)
        self.end_of_turn = self._end_of_turn()
        self.pad = self.end_of_turn if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    @cached_property
    def vocabulary_size(self) -> int:
        """Rows that an embedding must have: one more than the highest id."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @cached_property
    def identity(self) -> str:
        """sha256 of vocabulary and chat template: tokens mean the same to two tokenizers with the same identity."""
        known = json.dumps([sorted(self.tokenizer.get_vocab().items()), self.tokenizer.chat_template])
        return hashlib.sha256(known.encode()).hexdigest()

    @cached_property
    def control(self) -> re.Pattern[str]:
        """Finds special tokens in a text, where they would be taken for the chat's structure."""
        special = (token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special)
        return re.compile("|".join(sorted(map(re.escape, special), key=len, reverse=True)))

    def encode(self, text: str) -> list[int]:
        """The tokens of a text, nothing added; special tokens are read as such."""
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens, without special ones."""
        return self.tokenizer.backend_tokenizer.decode(list(map(int, tokens)), skip_special_tokens=True)

    def save(self, folder: str | Path) -> None:
        """Write the tokenizer where transformers can load it."""
        self.tokenizer.save_pretrained(folder)

    def _end_of_turn(self) -> int:
        answer = "42"
        chat = [{"role": "user", "content": "7"}, {"role": "assistant", "content": answer}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False)
        found = self.control.search(text, text.rindex(answer))
        if found is None:
            raise ValueError(
                f"tokenizer {self.name}: its chat template ends the assistant's turn with no special token, "
                f"so a model would not learn to stop; it renders {text!r}"
            )
        return self.tokenizer.convert_tokens_to_ids(found.group())


def load_tokenizer(source: str | None, texts: Iterable[str] = (), size: int = 1024) -> ChatTokenizer:
    """The tokenizer that a configuration names.

    Args:
        source: a local directory or a name on the Hugging Face hub; None for the built-in one, learnt from `texts`.
            What the hub's cache holds is taken from there, without asking the network.
        texts: for the built-in tokenizer.
        size: the most tokens of the built-in tokenizer.

    Raises:
        FileNotFoundError: no such directory, and not to be had from the hub.
        ValueError: the directory holds no tokenizer, or not one that chats can be made with.
    """
    # Several workers tokenise at once already; and a process that forks after tokenising in threads warns.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if source is None:
        return ChatTokenizer(train_tiny_tokenizer(texts, size), "built-in", builtin=True)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return ChatTokenizer(_from_directory(folder), source)
    return ChatTokenizer(_from_hub(source), source)


def _from_directory(folder: Path) -> "PreTrainedTokenizerFast":
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise ValueError(
            f"{folder}: transformers finds no tokenizer here. Expected tokenizer.json and tokenizer_config.json, as "
            f"tokenizer.save_pretrained writes them; found {names}. It said: {_first_line(error)}"
        ) from error


def _from_hub(name: str) -> "PreTrainedTokenizerFast":
    from huggingface_hub import constants
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        cause: Exception = error
    unreachable = why_unreachable()
    if not unreachable:
        try:
            return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            cause = error
    raise FileNotFoundError(
        f"tokenizer {name}: not a local directory, not in the cache {constants.HF_HUB_CACHE}, and not to be had from "
        f"the Hugging Face hub: {unreachable or _first_line(cause)}. Give a local directory that holds it, as "
        "tokenizer.save_pretrained writes it (works with HF_HUB_OFFLINE=1), or null for the built-in tokenizer"
    ) from cause


def _kind(template: object) -> str:
    return "none" if not template else f"several ({', '.join(map(str, template))})"


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n")[0] or type(error).__name__
