"""Loads the tokenizer of a run, with the special tokens that chats need."""

import hashlib
import json
import os
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from datamodules.multimodal.text.bpe_tokenizer import PLACEHOLDER, train_tiny_tokenizer
from engine.io.error_line import first_line
from engine.system.hf_hub import hub_unreachable_reason

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class ChatTokenizer:
    """A transformers tokenizer with its chat template and the tokens that have a special role.

    A tokenizer without the placeholder token gets it as an additional special token. Its id often lies within the
    embedding of the language model, because many models have more rows than tokens (Qwen2.5-0.5B: 151936 for 151665). A
    model needs new rows only if it has fewer than `vocabulary_size`.

    Raises:
        ValueError: the tokenizer has no chat template, or its template ends the turn of the assistant without a special
            token, so that a model would never learn to stop.
    """

    placeholder: int
    """Token that stands for a feature vector."""

    pad: int
    """Padding token; the end-of-turn token if the tokenizer has none, since padding is masked."""

    end_of_turn: int
    """Token with which the assistant stops."""

    def __init__(self, tokenizer: "PreTrainedTokenizerBase", name: str, *, builtin: bool = False) -> None:
        from transformers import PreTrainedTokenizerFast

        self.name, self.builtin = name, builtin
        if not isinstance(tokenizer, PreTrainedTokenizerFast):
            raise ValueError(f"tokenizer {name}: found no tokenizer.json, which fast tokenization requires")
        if not isinstance(tokenizer.chat_template, str):
            raise ValueError(
                f"tokenizer {name}: expected one chat template, found {_kind(tokenizer.chat_template)}. "
                "Use the instruct variant of the model, or add a chat_template.jinja to its directory"
            )
        self.tokenizer = tokenizer
        if PLACEHOLDER not in tokenizer.get_vocab():
            # Without this argument, transformers replaces the tokenizer's own extra special tokens.
            tokenizer.add_special_tokens({"extra_special_tokens": [PLACEHOLDER]}, replace_extra_special_tokens=False)
        # A tokenizer.json may have been saved with truncation and padding enabled.
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
        self.placeholder = self._id(PLACEHOLDER)
        self.end_of_turn = self._end_of_turn()
        self.pad = self.end_of_turn if tokenizer.pad_token_id is None else tokenizer.pad_token_id

    @cached_property
    def vocabulary_size(self) -> int:
        """Number of embedding rows that a model needs: the highest id plus one."""
        return max(self.tokenizer.get_vocab().values()) + 1

    @cached_property
    def identity(self) -> str:
        """SHA-256 of vocabulary and chat template. Equal identities give tokens the same meaning."""
        content = json.dumps([sorted(self.tokenizer.get_vocab().items()), self.tokenizer.chat_template])
        return hashlib.sha256(content.encode()).hexdigest()

    @cached_property
    def control(self) -> re.Pattern[str]:
        """Pattern of special tokens, which in a text would be parsed as chat structure."""
        # Longest first: a pattern takes the first alternative that matches, and a token may begin with another token.
        special = (token.content for token in self.tokenizer.added_tokens_decoder.values() if token.special)
        return re.compile("|".join(sorted(map(re.escape, special), key=len, reverse=True)))

    def encode(self, text: str) -> list[int]:
        """Encode a text without adding special tokens; special tokens in the text are parsed."""
        return self.tokenizer.backend_tokenizer.encode(text, add_special_tokens=False).ids

    def decode(self, tokens: Sequence[int]) -> str:
        """Decode tokens, skipping special tokens."""
        return self.tokenizer.backend_tokenizer.decode(list(map(int, tokens)), skip_special_tokens=True)

    def save(self, folder: str | Path) -> None:
        """Save the tokenizer in the format of transformers."""
        self.tokenizer.save_pretrained(folder)

    def _end_of_turn(self) -> int:
        answer = "42"
        chat = [{"role": "user", "content": "7"}, {"role": "assistant", "content": answer}]
        text = self.tokenizer.apply_chat_template(chat, tokenize=False)
        assert isinstance(text, str)  # tokens with tokenize=True
        # Searched after the answer, because the template writes special tokens before it, too.
        match = self.control.search(text, text.rindex(answer))
        if match is None:
            raise ValueError(
                f"tokenizer {self.name}: the chat template ends the assistant's turn without a special token, "
                f"so a model would not learn to stop; it renders {text!r}"
            )
        return self._id(match.group())

    def _id(self, token: str) -> int:
        number = self.tokenizer.convert_tokens_to_ids(token)
        assert isinstance(number, int)  # a list for several tokens
        return number


def load_tokenizer(source: str | None, texts: Iterable[str] = (), size: int = 1024) -> ChatTokenizer:
    """Load the tokenizer that a configuration names.

    Args:
        source: local directory or name on the Hugging Face hub; None for the built-in tokenizer, trained on `texts`. A
            tokenizer in the cache of the hub is loaded without network access.
        texts: training texts of the built-in tokenizer.
        size: maximum number of tokens of the built-in tokenizer.

    Raises:
        FileNotFoundError: the name is neither a directory nor available from the hub.
        ValueError: the directory has no tokenizer, or the tokenizer cannot encode chats.
    """
    # The workers already tokenise in parallel, and tokenizers warns if a process forks after using its threads.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    if source is None:
        return ChatTokenizer(train_tiny_tokenizer(texts, size), "built-in", builtin=True)
    folder = Path(source).expanduser()
    if folder.is_dir():
        return ChatTokenizer(_load_from_directory(folder), source)
    return ChatTokenizer(_load_from_hub(source), source)


def _load_from_directory(folder: Path) -> "PreTrainedTokenizerBase":
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        names = ", ".join(sorted(path.name for path in folder.iterdir())) or "nothing"
        raise ValueError(
            f"{folder}: transformers finds no tokenizer here. Expected tokenizer.json and tokenizer_config.json, as "
            f"tokenizer.save_pretrained writes them; found {names}. The error: {first_line(error)}"
        ) from error


def _load_from_hub(name: str) -> "PreTrainedTokenizerBase":
    from huggingface_hub import constants
    from transformers import AutoTokenizer

    try:
        # The cache first: otherwise transformers asks the hub even for a tokenizer that is cached.
        return AutoTokenizer.from_pretrained(name, trust_remote_code=False, local_files_only=True)
    except (OSError, ValueError, KeyError) as error:
        cause: Exception = error
    unreachable = hub_unreachable_reason()
    if not unreachable:
        try:
            return AutoTokenizer.from_pretrained(name, trust_remote_code=False)
        except (OSError, ValueError, KeyError) as error:
            cause = error
    raise FileNotFoundError(
        f"tokenizer {name}: not a local directory, not in the cache {constants.HF_HUB_CACHE}, and not available from "
        f"the Hugging Face hub: {unreachable or first_line(cause)}. Set a local directory, as "
        "tokenizer.save_pretrained writes it (works with HF_HUB_OFFLINE=1), or null for the built-in tokenizer"
    ) from cause


def _kind(template: Iterable[object] | None) -> str:
    return "none" if not template else f"several ({', '.join(map(str, template))})"
