"""Learns chats with another modality's features in them. How it is evaluated, a family's module says."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from datamodules.multimodal.batch import Examples, Rows
from engine.exact_mean import LossSum
from lightning_modules.multimodal.composition import ComposedModule
from lightning_modules.multimodal.flops import LanguageModelFlops, language_model_flops, trains
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.splice import Features


class ChatModule(ComposedModule):
    """Learns what the assistant says in chats.

    Args:
        language_model: the language model that reads the features.
        max_new_tokens: where an answer that is written in an evaluation ends at the latest.
        composition: see ComposedModule and LockstepModule.
    """

    terms_per_sample = 32  # tokens of an answer

    features_name = "feature_tokens"
    """What Throughput calls the tokens in which features stand."""

    def __init__(self, language_model: LanguageModelSettings, max_new_tokens: int = 64, **composition: Any) -> None:
        super().__init__(language_model, **composition)
        if max_new_tokens < 1:
            raise ValueError(f"model.init_args.max_new_tokens must be at least 1, got {max_new_tokens}")
        self.max_new_tokens = max_new_tokens

    def feature_flops(self, examples: Examples) -> int | None:
        """What encoder and projector take of a part, forward and backward, see flops.py; None: nobody has counted."""
        return None

    def training_loss(self, batch: Sequence[Examples]) -> LossSum:
        """Of a micro-batch in parts."""
        scores = [self._score(part.rows, self.features(part.modality)) for part in batch]
        total, count = (torch.stack(figures).sum() for figures in zip(*scores, strict=True))
        return LossSum(total, count)

    def amounts(self, batch: Sequence[Examples]) -> dict[str, float]:
        counts, flops = [part.rows.counts for part in batch], [self._flops(part) for part in batch]
        return {
            "tokens": sum(count.real for count in counts),
            "positions": sum(part.rows.tokens.numel() for part in batch),
            "supervised_tokens": sum(count.supervised for count in counts),
            self.features_name: sum(count.features for count in counts),
            **({} if None in flops else {"flops": sum(flops)}),
        }

    @cached_property
    def _language_model_flops(self) -> LanguageModelFlops | None:
        before = (part for name, part in self.parts.items() if name != "language_model")
        return language_model_flops(self.language_model.causal, behind_trained=any(map(trains, before)))

    def _flops(self, examples: Examples) -> int | None:
        features = self.feature_flops(examples)
        if features is None or self._language_model_flops is None:
            return None
        apart = self.language_model_settings.attention == "flash_attention_2"
        return features + self._language_model_flops.of(examples.rows, apart)

    def _score(self, rows: Rows, features: Features) -> tuple[Tensor, Tensor]:
        """Sum and number of the loss terms of the supervised tokens."""
        return self.language_model.loss(self._states(rows, features), rows.labels)
