"""Resource timelines with questions about them: from curves to batches of chats."""

from collections.abc import Iterator
from typing import Any

from datamodules.multimodal.datamodule import MultimodalDataModule
from datamodules.temporal.batch import SeriesLayout, SeriesTokens
from datamodules.temporal.channels import CHANNELS
from datamodules.temporal.samples import PLACEHOLDER, Split, Synthesis
from datamodules.temporal.source import SyntheticTimelines

_TEXTS = 1000
"""Samples whose texts the built-in tokenizer is made from."""


class ResourceTimelines(MultimodalDataModule):
    """Curves of the resources that are free on a machine, and questions about them.

    Args:
        synthesis: what the curves and the questions are like.
        num_samples: samples of an epoch.
        fresh_samples: other samples in every epoch instead of the same ones again.
        validation_size: questions of a validation; their answers are written word by word.
        test_size: questions of a test.
        series_tokens: what a series becomes for the language model: `pooled` (one token), `patch` (one for each patch of all channels), `channel_patch` (one for each patch of each channel).
        patch_length: steps of a patch.
        batches: see MultimodalDataModule and LockstepDataModule.
    """  # noqa: E501

    marker = PLACEHOLDER
    baselines = ("rules",)

    def __init__(
        self,
        synthesis: Synthesis | None = None,
        num_samples: int = 10_000,
        fresh_samples: bool = True,
        validation_size: int = 300,
        test_size: int = 1000,
        series_tokens: SeriesTokens = "channel_patch",
        patch_length: int = 4,
        **batches: Any,
    ) -> None:
        super().__init__(**batches)
        self.synthesis = synthesis or Synthesis()
        self.sizes = {Split.TRAIN: num_samples, Split.VALIDATION: validation_size, Split.TEST: test_size}
        for name, size in zip(("num_samples", "validation_size", "test_size"), self.sizes.values(), strict=True):
            if size < 1:
                raise ValueError(f"data.init_args.{name} must be at least 1, got {size}")
        if patch_length < 1:
            raise ValueError(f"data.init_args.patch_length is a number of steps, at least 1; got {patch_length}")
        self.fresh_samples = fresh_samples
        self.layout = SeriesLayout(len(CHANNELS), series_tokens, patch_length)

    def setup(self, stage: str) -> None:
        if stage == "fit":
            self.train_set = self.examples(self._synthetic(Split.TRAIN, self.fresh_samples))
        if stage in ("fit", "validate"):
            self.validation_set = self.questions(self._synthetic(Split.VALIDATION))
        if stage == "test":
            self.test_set = self.questions(self._synthetic(Split.TEST))

    def _synthetic(self, split: Split, fresh: bool = False) -> SyntheticTimelines:
        return SyntheticTimelines(self.synthesis, split, self.sizes[split], self.layout, fresh)

    def texts(self) -> Iterator[str]:
        for index in range(_TEXTS):
            sample = self.synthesis.sample(Split.TRAIN, 0, index)
            yield f"{sample.question}\n{sample.answer}"
