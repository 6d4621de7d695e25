"""Encodes chats with the chat template of a pretrained model, with a loss mask for the turns of the assistant.

The chat is rendered again up to each answer, as for generation, and the answer begins where that text ends. So the
model learns exactly what it has to generate, including a space before the first word, which is outside the generation
marks of LLaVA's template. A template that rewrites earlier turns does not render a chat that begins with its own
prompt; then its generation marks are used, and without marks it is refused.

An answer ends with its end-of-turn token, which is supervised. A template without this token (LLaVA 1.5) gets the
tokenizer's end-of-text token after each answer, as these models were trained.
"""

import bisect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from datamodules.multimodal.batch import Chat
from datamodules.multimodal.text.chat_encoder import GENERATION_MARK, PROMPT_ARGUMENTS, TEMPLATE_ARGUMENTS, Message
from datamodules.vision_language.pretrained.encoded_chat import EncodedChat
from datamodules.vision_language.pretrained.processor import ModelProcessor
from datamodules.vision_language.pretrained.turns import check_turns, split_images

if TYPE_CHECKING:
    from PIL.Image import Image

_TEXT_KEYS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "offset_mapping")
_SPANS = "text_replacement_offsets"


class _ProcessedText(NamedTuple):
    """What the processor returns for a text and its images."""

    tokens: NDArray[np.int64]  # [n]
    ends: NDArray[np.int64]  # [n] end of each token in the text with expanded images, ascending
    expansions: list[dict[str, Any]]  # place of each image before and after its expansion
    image_inputs: dict[str, Any]


class TemplateEncoder:
    """Encodes messages and their images.

    Args:
        model: the processor; it has a chat template.
    """

    def __init__(self, model: ModelProcessor) -> None:
        assert model.template is not None
        self.model, self._has_marks = model, bool(GENERATION_MARK.search(model.template))

    def chat(self, messages: Sequence[Message], images: Sequence["Image"], name: str) -> EncodedChat:
        """Encode a chat for training. All answers are supervised, including their end-of-turn tokens.

        Args:
            messages: the turns, with one marker per image in the texts of the user.
            images: the images, in order.
            name: name of the sample, for errors.

        Raises:
            ValueError: nothing is supervised, markers and images disagree, a text contains a special token, or the
                template does not reveal where the answers begin.
        """
        check_turns(messages, len(images), self.model.control, name)
        turns = self._conversation(messages)
        text = self._render(turns, name)
        starts = self._starts(turns, text, name)
        if not starts:
            raise ValueError(f"sample {name}: nothing to learn from: the chat has no turn of the assistant")
        processed = self._process(text, images)
        tokens = processed.tokens
        supervised = np.zeros(len(tokens), np.bool_)
        for start in starts:
            # `ends` is ascending, so this is the first token that ends behind the start of the answer.
            offset = _expanded_offset(start, processed.expansions)
            first = int(np.searchsorted(processed.ends, offset, side="right"))
            found = np.flatnonzero(np.isin(tokens[first:], self.model.ends))
            if not len(found):
                raise ValueError(f"sample {name}: the chat template of {self.model.name} does not end an answer")
            supervised[first : first + found[0] + 1] = True
        return EncodedChat(Chat(tokens, supervised, _image_tokens(tokens, self.model)), processed.image_inputs)

    def prompt(self, messages: Sequence[Message], images: Sequence["Image"], name: str) -> EncodedChat:
        """Encode a chat up to the start of the assistant's turn; a final turn of the assistant is dropped.

        For arguments and errors see `chat`.
        """
        if messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        check_turns(messages, len(images), self.model.control, name)
        text = self._render(self._conversation(messages), name, add_generation_prompt=True, **PROMPT_ARGUMENTS[0])
        processed = self._process(text, images)
        supervised = np.zeros(len(processed.tokens), np.bool_)
        placeholders = _image_tokens(processed.tokens, self.model)
        return EncodedChat(Chat(processed.tokens, supervised, placeholders), processed.image_inputs)

    def _conversation(self, messages: Sequence[Message]) -> list[dict[str, Any]]:
        """Return the messages with contents as lists of parts, and with an end after each answer if need be."""
        turns: list[dict[str, Any]] = []
        for message in messages:
            parts = split_images(message["content"], self.model.keeps_newlines)
            if message["role"] == "assistant" and self.model.end_of_turn is None:
                # An answer has no image, so its last part is a text.
                parts[-1]["text"] += self.model.processor.tokenizer.eos_token
            turns.append({"role": message["role"], "content": parts})
        return turns

    def _starts(self, turns: list[dict[str, Any]], text: str, name: str) -> list[int]:
        """Return where the answers begin in the rendered text."""
        starts = []
        for number, turn in enumerate(turns):
            if turn["role"] != "assistant":
                continue
            for arguments in PROMPT_ARGUMENTS:
                prefix = self._render(turns[:number], name, add_generation_prompt=True, **arguments)
                if text.startswith(prefix):
                    break
            else:
                if self._has_marks:
                    return self._marked_starts(turns, name)
                at = next((index for index, pair in enumerate(zip(text, prefix, strict=False)) if len({*pair}) > 1), 0)
                raise ValueError(
                    f"sample {name}: cannot locate the answer in message {number + 1}: the chat template of "
                    f"{self.model.name} has no generation marks, and the chat does not begin with its own prompt: "
                    f"{text[at : at + 40]!r} instead of {prefix[at : at + 40]!r}. Add the marks {{% generation %}} and "
                    "{% endgeneration %} to the template"
                )
            starts.append(len(prefix))
        return starts

    def _marked_starts(self, turns: list[dict[str, Any]], name: str) -> list[int]:
        _, spans = self.model.render(turns, return_assistant_tokens_mask=True, **TEMPLATE_ARGUMENTS)
        answers = sum(turn["role"] == "assistant" for turn in turns)
        if len(spans) != answers:
            raise ValueError(
                f"sample {name}: the chat template of {self.model.name} marks {len(spans)} generations in a chat with "
                f"{answers} answers"
            )
        return [start for start, _ in spans]

    def _render(self, turns: list[dict[str, Any]], name: str, **arguments: object) -> str:
        from jinja2 import TemplateError

        try:
            return self.model.render(turns, **TEMPLATE_ARGUMENTS, **arguments)[0]
        except TemplateError as error:
            roles = ", ".join(turn["role"] for turn in turns)
            raise ValueError(
                f"sample {name}: the chat template of {self.model.name} rejects turns of {roles}: {error}"
            ) from error

    def _process(self, text: str, images: Sequence["Image"]) -> _ProcessedText:
        """Tokenize a rendered text, in which the processor expands the placeholder of each image."""
        processor: Any = self.model.processor
        bos = processor.tokenizer.bos_token
        encoded = processor(
            text=[text],
            images=[list(images)] if images else None,
            # As apply_chat_template of transformers: the tokenizer adds the BOS unless the template has written it.
            add_special_tokens=not (bos and text.startswith(bos)),
            return_offsets_mapping=True,
            return_text_replacement_offsets=True,
            return_tensors="pt",
        )
        spans = encoded.pop(_SPANS, None)
        tokens, offsets = encoded["input_ids"][0].numpy(), encoded["offset_mapping"][0].numpy()
        # Added special tokens have the offsets (0, 0).
        ends = np.maximum.accumulate(offsets[:, 1]) if len(offsets) else offsets[:, 1]
        inputs = {key: value for key, value in encoded.items() if key not in _TEXT_KEYS}
        return _ProcessedText(tokens, ends, spans[0] if images and spans else [], inputs)


def _expanded_offset(at: int, spans: Sequence[dict[str, Any]]) -> int:
    """Return the offset of a character in the text with expanded images, given its offset in the rendered text."""
    before = bisect.bisect_right([span["span"][1] for span in spans], at)
    # The shift of the last expansion before the offset is the sum of all expansions so far.
    return at if not before else at + spans[before - 1]["new_span"][1] - spans[before - 1]["span"][1]


def _image_tokens(tokens: NDArray[np.int64], model: ModelProcessor) -> int:
    return int((tokens == model.image_token).sum())
