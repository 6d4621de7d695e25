"""Encodes chats for models without a chat template that read a prefix and answer with a suffix: PaliGemma.

A sample is one question and one answer. The processor writes the images first, then the question; the model attends to
these in both directions, and to the answer from the left.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datamodules.multimodal.batch import Chat
from datamodules.multimodal.images.tiling import MARKER
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.pretrained.encoded_chat import EncodedChat
from datamodules.vision_language.pretrained.processor import ModelProcessor
from datamodules.vision_language.pretrained.turns import check_turns

if TYPE_CHECKING:
    from PIL.Image import Image

_PIXELS = "pixel_values"
_TEXT_KEYS = ("input_ids", "attention_mask", "token_type_ids", "mm_token_type_ids", "labels")


class PrefixEncoder:
    """Encodes a question and its answer. For methods and errors see TemplateEncoder.

    Args:
        model: the processor.
    """

    def __init__(self, model: ModelProcessor) -> None:
        self.model = model

    def chat(self, messages: Sequence[Message], images: Sequence["Image"], name: str) -> EncodedChat:
        """Encode a question and its answer, which is supervised with its end-of-text token."""
        if not messages or messages[-1]["role"] != "assistant":
            raise ValueError(f"sample {name}: nothing to learn from: the chat has no turn of the assistant")
        return self._encode(messages[:-1], images, name, messages[-1]["content"])

    def prompt(self, messages: Sequence[Message], images: Sequence["Image"], name: str) -> EncodedChat:
        """Encode a question."""
        if messages and messages[-1]["role"] == "assistant":
            messages = messages[:-1]
        return self._encode(messages, images, name, None)

    def _encode(
        self, messages: Sequence[Message], images: Sequence["Image"], name: str, answer: str | None
    ) -> EncodedChat:
        check_turns(messages, len(images), self.model.control, name)
        roles = [message["role"] for message in messages]
        if roles != ["user"]:
            raise ValueError(
                f"sample {name}: {self.model.name} has no chat template and reads one question, found turns of "
                f"{', '.join(roles)} before the answer"
            )
        if answer is not None and (found := self.model.control.search(answer)):
            raise ValueError(f"sample {name}: the answer contains the special token {found.group()}; remove it")
        # The images come first, wherever the markers are.
        question = messages[0]["content"].replace(f"{MARKER}\n", "").replace(MARKER, "")
        encoded = self._process(question, images, answer)
        tokens = np.array(encoded["input_ids"][0], np.int64)
        # PaliGemma's processor marks the suffix with token type 1.
        supervised = (
            np.array(encoded["token_type_ids"][0], np.bool_) if answer is not None else np.zeros(len(tokens), bool)
        )
        inputs = {key: value for key, value in encoded.items() if key not in _TEXT_KEYS}
        return EncodedChat(Chat(tokens, supervised, int((tokens == self.model.image_token).sum())), inputs)

    def _process(self, question: str, images: Sequence["Image"], answer: str | None) -> Any:
        processor: Any = self.model.processor
        if images:
            text = processor.image_token * len(images) + question
            encoded = processor(text=[text], images=[list(images)], suffix=answer)
            # Without `return_tensors` the processor returns lists.
            return {**encoded, _PIXELS: torch.stack([torch.as_tensor(pixels) for pixels in encoded[_PIXELS]])}
        tokenizer = processor.tokenizer
        suffix = None if answer is None else [answer + tokenizer.eos_token]
        prefix = [f"{tokenizer.bos_token}{question}\n"]  # as the processor writes it after the images
        return dict(tokenizer(prefix, text_pair=suffix, return_token_type_ids=True))
