"""One sample of a training, altered: a function of (seed, epoch, index) alone."""

from collections.abc import Callable, Sequence

import numpy as np

from datamodules.document_qa.augmentation.distractors import with_distractors
from datamodules.document_qa.augmentation.mirror import mirrored
from datamodules.document_qa.augmentation.option_order import reordered
from datamodules.document_qa.augmentation.scan import Scanned, chosen_scan
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.augmentation.unneeded import without_unneeded
from datamodules.document_qa.augmentation.wordings import reworded
from datamodules.document_qa.document import Document
from datamodules.document_qa.question import Question
from engine.randomness import hash_bits

_STREAM = 0xA06  # this one's name beside those of the data, which hash the same seed

Altered = tuple[Sequence[Question], Document, tuple[int, ...]]


class Augmenter:
    """
    Args:
        settings: see there.
        seed: of the run.
    """

    def __init__(self, settings: AugmentationSettings, seed: int) -> None:
        self.settings, self.seed = settings, seed

    def altered(
        self,
        questions: Sequence[Question],
        document: Document,
        ranked: Sequence[int],
        another: Callable[[], Document],
        epoch: int,
        index: int,
    ) -> Altered:
        """
        Args:
            ranked: the pages that the retriever names for the questions as they were asked.
            another: gives another document.

        Returns:
            Questions, document and ranked pages to train on instead.
        """
        settings = self.settings
        key = int(hash_bits(self.seed, _STREAM, epoch, index))
        random = np.random.Generator(np.random.Philox(key=key))
        if settings.flips != "none" and random.random() < 0.5:
            questions, document = mirrored(questions, document, settings.flips, ranked)
        if settings.option_order:
            questions = [reordered(question, random) for question in questions]
        questions = [
            reworded(question, random) if random.random() < settings.paraphrase else question for question in questions
        ]
        if settings.distractors:
            document, ranked = with_distractors(questions, document, ranked, another, settings.distractors, random)
        scan = chosen_scan(settings, random)
        if settings.unneeded and random.random() < settings.unneeded:
            document = without_unneeded(questions, document, random)
        return questions, document if scan is None else Scanned(document, scan, key), tuple(ranked)
