"""Encodes messages as tokens, with a loss mask for the turns of the assistant.

There are three ways to compute the mask:

- The built-in template is known, so its tokens are concatenated, which takes a third of the time.
- A template with generation marks returns the mask itself.
- Most published templates (Qwen2.5, Llama) have no marks. The chat is then rendered again up to each turn of the
  assistant, as for generation, and the assistant's tokens begin where that prefix ends.

All ways that apply to a template give the same mask, which is tested.
"""

import re
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import Chat
from datamodules.multimodal.text.bpe_tokenizer import END, PLACEHOLDER, START
from datamodules.multimodal.text.tokenizer import ChatTokenizer

ROLES = ("system", "user", "assistant")

GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")

# Llama 3.2 writes today's date into each chat by default. A sample must not change when a run is resumed on another
# day, so the date of Llama 3.1 is used.
TEMPLATE_ARGUMENTS: dict[str, Any] = {"date_string": "26 Jul 2024"}

# Qwen3 writes an empty train of thought before the last answer of a chat but not before earlier answers. It belongs to
# the prompt, so the model does not have to generate it.
PROMPT_ARGUMENTS = ({"enable_thinking": False}, {"enable_thinking": True})


MAX_CHARACTERS = 4_000_000
"""Largest number of characters of a chat: about ten seconds of tokenizing, and more than any model's context."""

Placeholders = int | tuple[int | str, ...]
"""Number of placeholders of a marker, or numbers of placeholders with texts between them."""


class Message(TypedDict):
    """A turn of a chat, in the form that chat templates read."""

    role: str  # one of ROLES
    content: str


class ChatEncoder:
    """Encodes messages as chats.

    Args:
        tokenizer: tokenizer of the run.
        marker: marker of the other modality in the text of a user, for example `<series>`.
    """

    def __init__(self, tokenizer: ChatTokenizer, marker: str) -> None:
        self.tokenizer, self.marker = tokenizer, marker
        self._has_marks = bool(GENERATION_MARK.search(tokenizer.tokenizer.chat_template))
        # Tokens before and after the text of a turn in the built-in template, CHATML.
        encode = tokenizer.encode
        self._frames = {role: (encode(f"{START}{role}\n"), encode(f"{END}\n")) for role in ROLES}

    def chat(self, messages: Sequence[Message], counts: Sequence[Placeholders] = (), sample: object = "") -> Chat:
        """Encode a chat for training. All turns of the assistant are supervised, including their end-of-turn tokens.

        Args:
            messages: the turns.
            counts: placeholders of each marker, in the order of the markers; each number at least 1.
            sample: name of the chat, for errors.

        Raises:
            ValueError: no token is supervised, markers and `counts` disagree, a text contains a special token, or the
                template does not reveal where the turns of the assistant begin.
        """
        turns = self._validate(messages, counts, sample)
        if self.tokenizer.builtin:
            tokens, supervised = self._encode_builtin(turns)
        elif self._has_marks:
            tokens, supervised = self._encode_with_marks(turns, sample)
        else:
            tokens, supervised = self._encode_by_prefixes(turns, sample)
        if not supervised.any():
            raise ValueError(f"sample {sample}: nothing to learn from: the chat has no turn of the assistant")
        return self._expand_placeholders(tokens, supervised, counts, sample)

    def prompt(self, messages: Sequence[Message], counts: Sequence[Placeholders] = (), sample: object = "") -> Chat:
        """Encode a chat up to the start of the assistant's turn; a final turn of the assistant is dropped.

        For arguments and errors see `chat`. The result is a prefix of `chat` of the same messages.
        """
        if messages and messages[-1].get("role") == "assistant":
            messages = messages[:-1]
        turns = self._validate(messages, counts, sample)
        if self.tokenizer.builtin:
            tokens = np.concatenate([self._encode_builtin(turns)[0], self._frames["assistant"][0]])
        else:
            tokens = self._render(turns, sample, add_generation_prompt=True, **PROMPT_ARGUMENTS[0])
        return self._expand_placeholders(tokens, np.zeros(len(tokens), np.bool_), counts, sample)

    def _validate(self, messages: Sequence[Message], counts: Sequence[Placeholders], sample: object) -> list[Message]:
        """Check the messages and return them with one placeholder per marker."""
        check_messages(messages, sample)
        turns, markers = [], 0
        for number, message in enumerate(messages, 1):
            role, content = message["role"], message["content"]
            special = self.tokenizer.control.search(content)
            if special:
                raise ValueError(
                    f"sample {sample}: message {number} ({role}) contains the special token {special.group()}, which "
                    "would be parsed as chat structure; remove it from the text"
                )
            count = content.count(self.marker)
            if count and role != "user":
                raise ValueError(f"sample {sample}: message {number} ({role}): {self.marker} belongs in a user's text")
            markers += count
            turns.append(Message(role=role, content=content.replace(self.marker, PLACEHOLDER)))
        if markers != len(counts) or any(number < 1 for count in counts for number in _numbers(count)):
            raise ValueError(
                f"sample {sample}: found {self.marker} {markers} times in the user's text; "
                f"expected once for each of {len(counts)} (feature vectors: {list(counts)})"
            )
        return turns

    def _encode_builtin(self, turns: list[Message]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        tokens, supervised = [], []
        for role, content in ((turn["role"], turn["content"]) for turn in turns):
            before, after = self._frames[role]
            text = self.tokenizer.encode(content)
            tokens += before + text + after
            # `after` is the end-of-turn token, which the model learns to write, and a line end of the template.
            learned = role == "assistant"
            supervised += [False] * len(before) + [learned] * (len(text) + 1) + [False] * (len(after) - 1)
        return np.array(tokens, np.int64), np.array(supervised, np.bool_)

    def _encode_with_marks(self, turns: list[Message], sample: object) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        options = {"tokenize": True, "return_dict": True, "return_assistant_tokens_mask": True}
        encoded = self._apply_template(turns, sample, **options)
        tokens = np.array(encoded["input_ids"], np.int64)
        supervised = np.array(encoded["assistant_masks"], np.bool_)
        # Some templates close the mark before the end-of-turn token, which must be learned as well.
        follows = np.concatenate([[False], supervised[:-1]])
        return tokens, supervised | (follows & (tokens == self.tokenizer.end_of_turn))

    def _encode_by_prefixes(self, turns: list[Message], sample: object) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        tokens = self._render(turns, sample)
        supervised = np.zeros(len(tokens), np.bool_)
        for number, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            unclear = f"sample {sample}: cannot locate the assistant's text in message {number + 1}"
            # Whether the template writes an empty train of thought depends on the turn's place, so both are tried.
            for arguments in PROMPT_ARGUMENTS:
                prefix = self._render(turns[:number], sample, add_generation_prompt=True, **arguments)
                start = len(prefix)
                if np.array_equal(tokens[:start], prefix):
                    break
            else:
                shared = min(start, len(tokens))
                at = int(np.append(tokens[:shared] != prefix[:shared], True).argmax())
                found, expected = (self.tokenizer.tokenizer.decode(ids[at : at + 12]) for ids in (tokens, prefix))
                raise ValueError(
                    f"{unclear}: the chat template of {self.tokenizer.name} has no generation marks, and the chat does "
                    f"not begin with its own prompt: {found!r} instead of {expected!r}. Add the marks "
                    "{% generation %} and {% endgeneration %} to the template"
                )
            ends = np.flatnonzero(tokens[start:] == self.tokenizer.end_of_turn)
            if not len(ends):
                raise ValueError(f"{unclear}: the chat template of {self.tokenizer.name} does not end this turn")
            supervised[start : start + ends[0] + 1] = True
        return tokens, supervised

    def _render(self, turns: list[Message], sample: object, **arguments: object) -> NDArray[np.int64]:
        text = self._apply_template(turns, sample, tokenize=False, **arguments)
        return np.array(self.tokenizer.encode(text), np.int64)

    def _apply_template(self, turns: list[Message], sample: object, **arguments: Any) -> Any:
        from jinja2 import TemplateError

        try:
            return self.tokenizer.tokenizer.apply_chat_template(
                turns,  # type: ignore[arg-type]  # annotated as dicts, but any mapping works, such as a TypedDict
                **TEMPLATE_ARGUMENTS,
                **arguments,
            )
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in turns)
            raise ValueError(
                f"sample {sample}: the chat template of {self.tokenizer.name} rejects turns of {roles}: {error}"
            ) from error

    def _expand_placeholders(
        self, tokens: NDArray[np.int64], supervised: NDArray[np.bool_], counts: Sequence[Placeholders], sample: object
    ) -> Chat:
        """Repeat each placeholder once per feature vector, and insert the texts between them."""
        at = np.flatnonzero(tokens == self.tokenizer.placeholder)
        if len(at) != len(counts):
            raise ValueError(f"sample {sample}: {len(counts)} markers became {len(at)} placeholders in the template")
        if not len(at):
            return Chat(tokens, supervised, 0)
        repeats = np.ones(len(tokens), np.int64)
        total = sum(number for count in counts for number in _numbers(count))
        expanded = [self._marker_tokens(count) for count in counts]
        repeats[at] = [len(part) for part in expanded]
        tokens, supervised = np.repeat(tokens, repeats), np.repeat(supervised, repeats)
        # Only texts between placeholders are other tokens than the repeated placeholder.
        if any(isinstance(count, tuple) for count in counts):
            ends = np.cumsum(repeats)[at]
            for part, end in zip(expanded, ends.tolist(), strict=True):
                tokens[end - len(part) : end] = part
        return Chat(tokens, supervised, total)

    def _marker_tokens(self, count: Placeholders) -> NDArray[np.int64]:
        """Return the tokens in place of a marker."""
        placeholder = self.tokenizer.placeholder
        if isinstance(count, int):
            return np.full(count, placeholder, np.int64)
        parts = [[placeholder] * piece if isinstance(piece, int) else self._between(piece) for piece in count]
        return np.array([token for part in parts for token in part], np.int64)

    def _between(self, text: str) -> list[int]:
        """Return the tokens of a text between two placeholders: some tokenizers prefix a text that stands alone."""
        return self.tokenizer.encode(f"{PLACEHOLDER}{text}{PLACEHOLDER}")[1:-1]


def check_messages(messages: Sequence[Message], sample: object) -> None:
    """Raise ValueError if a chat has no prompt, a turn without role or text, or too many characters to be tokenized."""
    if not messages or messages[0].get("role") == "assistant":
        raise ValueError(f"sample {sample}: a chat must begin with a message of the user or the system")
    for number, message in enumerate(messages, 1):
        if message.get("role") not in ROLES or not isinstance(message.get("content"), str):
            raise ValueError(f"sample {sample}: message {number} must have a role ({', '.join(ROLES)}) and a text")
    characters = sum(len(message["content"]) for message in messages)
    if characters > MAX_CHARACTERS:
        raise ValueError(
            f"sample {sample}: found {characters:,} characters, expected at most {MAX_CHARACTERS:,}; shorten the text"
        )


def _numbers(count: Placeholders) -> tuple[int, ...]:
    """Return the numbers of placeholders, without the texts between them."""
    return (count,) if isinstance(count, int) else tuple(piece for piece in count if isinstance(piece, int))
