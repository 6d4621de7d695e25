"""Augments a training sample, as a function of (seed, epoch, index)."""

from collections.abc import Callable, Sequence

import numpy as np

from datamodules.document_qa.augmentation.distractor_pages import add_distractor_pages
from datamodules.document_qa.augmentation.drop_irrelevant import drop_irrelevant
from datamodules.document_qa.augmentation.mirror import mirror_figures
from datamodules.document_qa.augmentation.option_shuffle import shuffle_options
from datamodules.document_qa.augmentation.paraphrase import paraphrase_question
from datamodules.document_qa.augmentation.scan_noise import ScannedDocument, sample_scan
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from datamodules.document_qa.types.document import Document
from datamodules.document_qa.types.question import Question
from engine.determinism.stateless_rng import hash_bits

_STREAM = 0xA06  # separates these random numbers from others that hash the same seed

AugmentedSample = tuple[Sequence[Question], Document, tuple[int, ...]]


class Augmenter:
    """Augments training samples.

    Args:
        settings: see AugmentationSettings.
        seed: seed of the run.
    """

    def __init__(self, settings: AugmentationSettings, seed: int) -> None:
        self.settings, self.seed = settings, seed

    def augment(
        self,
        questions: Sequence[Question],
        document: Document,
        ranked: Sequence[int],
        another: Callable[[], Document],
        epoch: int,
        index: int,
    ) -> AugmentedSample:
        """Augment a sample.

        Args:
            questions: its questions.
            document: their document.
            ranked: page numbers in the retriever's order, for the original questions.
            another: returns another document.
            epoch: training epoch.
            index: index of the sample.

        Returns:
            The augmented questions, document and ranked pages.
        """
        settings = self.settings
        key = int(hash_bits(self.seed, _STREAM, epoch, index))
        random = np.random.Generator(np.random.Philox(key=key))
        # All changes draw from the same generator, so another order would give other samples for the same seed.
        if settings.flips != "none" and random.random() < 0.5:
            questions, document = mirror_figures(questions, document, settings.flips, ranked)
        if settings.option_order:
            questions = [shuffle_options(question, random) for question in questions]
        questions = [
            paraphrase_question(question, random) if random.random() < settings.paraphrase else question
            for question in questions
        ]
        if settings.distractors:
            document, ranked = add_distractor_pages(questions, document, ranked, another, settings.distractors, random)
        scan = sample_scan(settings, random)
        if settings.drop_irrelevant and random.random() < settings.drop_irrelevant:
            document = drop_irrelevant(questions, document, random)
        return questions, document if scan is None else ScannedDocument(document, scan, key), tuple(ranked)
