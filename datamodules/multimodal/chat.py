"""Messages with roles as tokens, with the mask of what the assistant says.

Three ways lead from a chat template to the mask. The built-in template is known, and joined from tokens (in a third
of the time). A template with generation marks says itself what the assistant says. Most published templates
(Qwen2.5, Llama) have none; then the chat is rendered once more up to each turn of the assistant, as for generation:
where those tokens end, the assistant's begin. The ways agree wherever more than one is open; tests hold them equal.
"""

import re
from collections.abc import Sequence
from typing import Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import Chat
from datamodules.multimodal.tiny_tokenizer import END, PLACEHOLDER, START
from datamodules.multimodal.tokenizer import ChatTokenizer

ROLES = ("system", "user", "assistant")

_GENERATION_MARK = re.compile(r"\{%-?\s*generation\s*-?%\}")

# Llama 3.2 writes today's date into each chat unless told one. A sample must be the same when a run is resumed on
# another day: this is the date that its predecessors wrote.
TEMPLATE_ARGUMENTS = {"date_string": "26 Jul 2024"}

# Qwen3 writes an empty train of thought before the last answer of a chat, which so belongs to the prompt and need not
# be generated, but none before earlier answers.
PROMPT_ARGUMENTS = ({"enable_thinking": False}, {"enable_thinking": True})


class Message(TypedDict):
    """One turn of a chat."""

    role: str  # one of ROLES
    content: str


class ChatEncoder:
    """Makes chats from messages.

    Args:
        tokenizer: the run's.
        marker: what stands in a user's text where the other modality goes, as ``<series>``.
    """

    def __init__(self, tokenizer: ChatTokenizer, marker: str) -> None:
        self.tokenizer, self.marker = tokenizer, marker
        self._marked = bool(_GENERATION_MARK.search(tokenizer.tokenizer.chat_template))
        # What stands before and after a turn's text in the built-in template: CHATML, in tokens.
        encode = tokenizer.encode
        self._frames = {role: (encode(f"{START}{role}\n"), encode(f"{END}\n")) for role in ROLES}

    def chat(self, messages: Sequence[Message], counts: Sequence[int] = (), sample: object = "") -> Chat:
        """A chat to learn from: all that the assistant says is supervised, with the end of each of its turns.

        Args:
            messages: the turns.
            counts: placeholders for each marker, in the order of the markers; each at least 1.
            sample: names the chat in errors.

        Raises:
            ValueError: no token would be supervised, markers and `counts` disagree, a text holds a special token, or
                the template does not say where the assistant speaks.
        """
        turns = self._checked(messages, counts, sample)
        if self.tokenizer.builtin:
            tokens, supervised = self._joined(turns)
        elif self._marked:
            tokens, supervised = self._by_marks(turns, sample)
        else:
            tokens, supervised = self._by_prefixes(turns, sample)
        if not supervised.any():
            raise ValueError(f"sample {sample}: nothing to learn from: it has no turn of the assistant's")
        return self._expanded(tokens, supervised, counts, sample)

    def prompt(self, messages: Sequence[Message], counts: Sequence[int] = (), sample: object = "") -> Chat:
        """A chat up to where the assistant is to speak; a last turn of the assistant's is left out.

        Arguments and errors as of `chat`. It is how `chat` of the same messages begins.
        """
        if messages and messages[-1].get("role") == "assistant":
            messages = messages[:-1]
        turns = self._checked(messages, counts, sample)
        if self.tokenizer.builtin:
            tokens = np.concatenate([self._joined(turns)[0], self._frames["assistant"][0]])
        else:
            tokens = self._rendered(turns, sample, add_generation_prompt=True, **PROMPT_ARGUMENTS[0])
        return self._expanded(tokens, np.zeros(len(tokens), np.bool_), counts, sample)

    def _checked(self, messages: Sequence[Message], counts: Sequence[int], sample: object) -> list[Message]:
        """The messages with one placeholder for each marker."""
        if not messages or messages[0].get("role") == "assistant":
            raise ValueError(f"sample {sample}: a chat begins with a message, and not with the assistant's")
        turns, markers = [], 0
        for number, message in enumerate(messages, 1):
            role, content = message.get("role"), message.get("content")
            if role not in ROLES or not isinstance(content, str):
                raise ValueError(f"sample {sample}: message {number} must have a role ({', '.join(ROLES)}) and a text")
            found = self.tokenizer.control.search(content)
            if found:
                raise ValueError(
                    f"sample {sample}: message {number} ({role}) holds the special token {found.group()}, which would "
                    "be read as the chat's structure; take it out of the text"
                )
            marked = content.count(self.marker)
            if marked and role != "user":
                raise ValueError(f"sample {sample}: message {number} ({role}): {self.marker} belongs in a user's text")
            markers += marked
            turns.append(Message(role=role, content=content.replace(self.marker, PLACEHOLDER)))
        if markers != len(counts) or any(count < 1 for count in counts):
            raise ValueError(
                f"sample {sample}: {self.marker} stands {markers} times in the user's text; "
                f"expected once for each of {len(counts)} (feature vectors: {list(counts)})"
            )
        return turns

    def _joined(self, turns: list[Message]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        tokens, supervised = [], []
        for role, content in ((turn["role"], turn["content"]) for turn in turns):
            before, after = self._frames[role]
            said = self.tokenizer.encode(content)
            tokens += before + said + after
            told = role == "assistant"
            supervised += [False] * len(before) + [told] * (len(said) + 1) + [False] * (len(after) - 1)
        return np.array(tokens, np.int64), np.array(supervised, np.bool_)

    def _by_marks(self, turns: list[Message], sample: object) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        encoded = self._applied(turns, sample, tokenize=True, return_dict=True, return_assistant_tokens_mask=True)
        tokens = np.array(encoded["input_ids"], np.int64)
        supervised = np.array(encoded["assistant_masks"], np.bool_)
        # Some templates close the mark before the end of the turn, which would then never be learnt.
        follows = np.concatenate([[False], supervised[:-1]])
        return tokens, supervised | (follows & (tokens == self.tokenizer.end_of_turn))

    def _by_prefixes(self, turns: list[Message], sample: object) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        tokens = self._rendered(turns, sample)
        supervised = np.zeros(len(tokens), np.bool_)
        for number, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            unclear = f"sample {sample}: cannot tell what the assistant says in message {number + 1}"
            for arguments in PROMPT_ARGUMENTS:
                prefix = self._rendered(turns[:number], sample, add_generation_prompt=True, **arguments)
                start = len(prefix)
                if np.array_equal(tokens[:start], prefix):
                    break
            else:
                shared = min(start, len(tokens))
                at = int(np.append(tokens[:shared] != prefix[:shared], True).argmax())
                found, expected = (self.tokenizer.tokenizer.decode(some[at : at + 12]) for some in (tokens, prefix))
                raise ValueError(
                    f"{unclear}: the chat template of {self.tokenizer.name} has no generation marks, and the chat does "
                    f"not begin as its own prompt: {found!r} instead of {expected!r}. Put the marks "
                    "{% generation %} and {% endgeneration %} in the template"
                )
            ends = np.flatnonzero(tokens[start:] == self.tokenizer.end_of_turn)
            if not len(ends):
                raise ValueError(f"{unclear}: the chat template of {self.tokenizer.name} does not end this turn")
            supervised[start : start + ends[0] + 1] = True
        return tokens, supervised

    def _rendered(self, turns: list[Message], sample: object, **arguments: bool) -> NDArray[np.int64]:
        text = self._applied(turns, sample, tokenize=False, **arguments)
        return np.array(self.tokenizer.encode(text), np.int64)

    def _applied(self, turns: list[Message], sample: object, **arguments: bool) -> Any:
        from jinja2 import TemplateError

        try:
            return self.tokenizer.tokenizer.apply_chat_template(turns, **TEMPLATE_ARGUMENTS, **arguments)
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in turns)
            raise ValueError(
                f"sample {sample}: the chat template of {self.tokenizer.name} refuses turns of {roles}: {error}"
            ) from error

    def _expanded(
        self, tokens: NDArray[np.int64], supervised: NDArray[np.bool_], counts: Sequence[int], sample: object
    ) -> Chat:
        """One placeholder for each feature vector instead of one for each marker."""
        at = np.flatnonzero(tokens == self.tokenizer.placeholder)
        if len(at) != len(counts):
            raise ValueError(f"sample {sample}: {len(counts)} markers became {len(at)} placeholders in the template")
        if not len(at):
            return Chat(tokens, supervised, 0)
        repeats = np.ones(len(tokens), np.int64)
        repeats[at] = counts
        return Chat(np.repeat(tokens, repeats), np.repeat(supervised, repeats), int(sum(counts)))
