"""Selects chats for evaluation, and grades the answers to them."""

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from typing_extensions import override

from datamodules.multimodal.chat_dataset import ChatItem
from datamodules.multimodal.text.chat_encoder import Message
from datamodules.vision_language.chat_dataset import ChatImages, Chats, ImageChatDataset
from datamodules.vision_language.chat_file import ImageChat, ReferenceAnswer, last_answer
from datamodules.vision_language.grading import ANLS, OUTCOMES, grade, grade_reference
from engine.data.errors import BadSampleError
from engine.determinism.stateless_rng import hash_permutation

if TYPE_CHECKING:
    from PIL.Image import Image

MAX_KINDS = 64
"""Largest number of kinds with metrics of their own."""

_CHOICE = 0xC401  # key of the hash that selects evaluation samples; the same in every run


class _Texts(NamedTuple):
    """What an evaluation keeps of a chat in memory."""

    messages: list[Message]
    length: int  # estimated tokens of the prompt
    reference: ReferenceAnswer | None


class EvaluationDataset(ImageChatDataset):
    """Chats for evaluation. All are read once at the start, and their texts are kept in memory.

    Args:
        chats: the chats, of which epoch 0 is used.
        processor: processor of the images.
        size: maximum number of samples, selected among all of them and the same in every run; None for all.
    """

    def __init__(self, chats: Chats, processor: ChatImages, size: int | None = None) -> None:
        super().__init__(processor)
        self.chats = chats
        self._selected = select_samples(len(chats), len(chats) if size is None else size)
        # Read in the order of the files, which is fastest, and before workers are forked, so that they share the texts.
        self._texts = [self._read_texts(int(index)) for index in self._selected]
        references = [texts.reference for texts in self._texts if texts.reference is not None]
        kinds = sorted({reference.kind for reference in references} - {""})
        self.kinds = tuple(kinds) if len(kinds) <= MAX_KINDS else ()
        """Kinds of the questions in order of their names; none if there are more than MAX_KINDS."""
        # ANLS is the metric of tables with several accepted answers, such as DocVQA.
        several = any(len(reference.accepted) > 1 for reference in references)
        self.outcomes = (*OUTCOMES, *([ANLS] if several else []), *(f"{kind}/exact" for kind in self.kinds))
        """Names of the outcomes of a grade."""

    @override
    def __len__(self) -> int:
        return len(self._selected)

    @override
    def name(self, index: int, epoch: int = 0) -> str:
        return f"{index} ({self.chats.name(0, int(self._selected[index]))})"

    def messages(self, index: int) -> list[Message]:
        """Return the texts of a sample; empty if it cannot be read."""
        return self._texts[index].messages

    def length(self, index: int) -> int:
        """Estimate the number of tokens of a sample's prompt."""
        return self._texts[index].length

    def kind(self, index: int) -> str:
        """Return the kind of a sample, one of `kinds`; the empty string if it has none."""
        reference = self._texts[index].reference
        return reference.kind if reference is not None and reference.kind in self.kinds else ""

    def right_answer(self, index: int) -> str:
        """Return the reference for the last turn of the assistant; empty if it is unknown."""
        return last_answer(self.messages(index))

    def grade(self, index: int, text: str) -> dict[str, tuple[float, float]]:
        """Return {outcome: (points reached, points possible)} of an answer; empty without a reference."""
        right, reference = self.right_answer(index), self._texts[index].reference
        if reference is not None:
            return grade_reference(reference._replace(kind=self.kind(index)), text, ANLS in self.outcomes)
        return grade(right, text) if right else {}

    def decode_images(self, index: int) -> list["Image"]:
        """Decode the images of a sample, at their original size."""
        return self.processor.decode_images(self._read(int(self._selected[index])))

    @override
    def item(self, epoch: int, index: int) -> ChatItem:
        return self.processor.item(self._read(int(self._selected[index])))

    def _read(self, index: int) -> ImageChat:
        return self.chats.read(0, index)

    def _read_texts(self, index: int) -> _Texts:
        try:
            chat = self._read(index)
        except BadSampleError:
            return _Texts([], 0, None)  # `item` raises the error again when the sample is drawn
        return _Texts(chat.messages, self.processor.length(chat), chat.reference)


def select_samples(samples: int, size: int) -> NDArray[np.int64]:
    """Select the samples of an evaluation, as many short runs because neighbors are read together.

    Args:
        samples: number of samples.
        size: maximum number of selected samples.

    Returns:
        int64 [min(size, samples)], ascending.
    """
    if size >= samples:
        return np.arange(samples)
    stretch = int(np.clip(size // 16, 1, 16))
    # The runs get a random order, and the samples of the first runs are taken, in the order of the files.
    order = hash_permutation(-(-samples // stretch), _CHOICE)[np.arange(samples) // stretch]
    return np.sort(np.argsort(order, kind="stable")[:size])
