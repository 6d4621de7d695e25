"""Trains a language model that reads time series: the LightningModule of the temporal family."""

import logging
from typing import Any

from typing_extensions import override

from datamodules.temporal.interface import TemporalData
from engine.base_options import Unpack
from engine.checkpointing.checkpoint_schema import declare_part
from engine.checkpointing.schema import COUNT, optional
from engine.number_check import check_number, check_numbers
from lightning_modules.multimodal.connector.projector import ProjectorSettings
from lightning_modules.multimodal.evaluation.generative_evaluation import check_max_new_tokens
from lightning_modules.multimodal.evaluation.outcome_metric import widest_float
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.language_module import LanguageModuleOptions
from lightning_modules.multimodal.multimodal_module import MultimodalModule
from lightning_modules.temporal.series_encoder import Pooling
from lightning_modules.temporal.series_evaluation import SeriesEvaluation
from lightning_modules.temporal.series_features import SeriesFeatures

log = logging.getLogger("lockstep")

TRAINED_STEPS = "trained_series_steps"
"""Key of a checkpoint: number of steps of the longest training series."""

declare_part(TRAINED_STEPS, optional(COUNT))


class SeriesLanguageModel(MultimodalModule[TemporalData]):
    """Answers questions about series: timelines of resources, or any series of the user.

    Args:
        language_model: the language model that reads the features.
        projector: maps the encoder's features to the language model's embeddings.
        encoder_size: width of the encoder's convolutions.
        feature_size: width of the encoder's features.
        kernel_sizes: kernel sizes of the encoder's convolutions in steps, one per layer.
        pooling: `mean` or `max` over the steps, if the data have one feature for a whole series.
        encoder_dropout: share of the encoder's activations dropped in training.
        encoder_activation_checkpointing: keep only the states between the encoder's layers, and recompute the others in
            the backward pass: less memory, more time.
        encoder_summary: add a summary of each channel (extremes with their steps, levels at both ends) to its features;
            needs `series_tokens: channel_patch` of the data.
        blind: train and evaluate without the series, as a baseline.
        max_new_tokens: maximum length of an answer that an evaluation generates.
        training: see LanguageModule and LockstepModule; the parts in `learning_rates` are encoder, projector and
            language_model.
    """

    def __init__(
        self,
        language_model: LanguageModelSettings,
        projector: ProjectorSettings | None = None,
        encoder_size: int = 32,
        feature_size: int = 128,
        kernel_sizes: tuple[int, ...] = (3, 5, 7),
        pooling: Pooling = "mean",
        encoder_dropout: float = 0.0,
        encoder_activation_checkpointing: bool = False,
        encoder_summary: bool = False,
        blind: bool = False,
        max_new_tokens: int = 64,
        **training: Unpack[LanguageModuleOptions],
    ) -> None:
        sizes = {"encoder_size": encoder_size, "feature_size": feature_size}
        sizes |= {f"kernel_sizes[{index}]": size for index, size in enumerate(kernel_sizes)}
        check_numbers("model.init_args.", sizes, at_least=1)
        check_number("model.init_args.encoder_dropout", encoder_dropout, at_least=0, below=1)
        encoder: dict[str, Any] = {
            "output_size": feature_size,
            "hidden_size": encoder_size,
            "kernel_sizes": tuple(kernel_sizes),
            "pooling": pooling,
            "dropout": encoder_dropout,
            "activation_checkpointing": encoder_activation_checkpointing,
            "summary": encoder_summary,
        }
        # The encoder is built later, in `configure_model`: it depends on the layout of the data.
        super().__init__(SeriesFeatures(encoder, blind), language_model, projector=projector, **training)
        kind = self.projector_settings.kind
        # Both map whole images [S, N, C]; series of different lengths have their features in a row, [F, C].
        if kind in ("pixel_shuffle", "resampler"):
            raise ValueError(
                f"model.init_args.projector.kind is {kind}, which takes the features of images; expected linear, mlp "
                "or deep_mlp for a series"
            )
        self.max_new_tokens = check_max_new_tokens(max_new_tokens)
        self._trained_steps: int | None = None
        self._warned = False

    @override
    def build_evaluation(self) -> SeriesEvaluation:
        dtype = widest_float(self.trainer.strategy.root_device)
        return SeriesEvaluation(self.data, dtype, self.max_new_tokens, self._rule_answers)

    def _rule_answers(self, sample: int) -> dict[str, str]:
        return {"rules": self.data.right_answer(sample)} if "rules" in self.data.baselines else {}

    # -- series that are longer than in training -----------------------------------------------------------------------

    @override
    def on_save_checkpoint(self, checkpoint: dict[str, object]) -> None:
        super().on_save_checkpoint(checkpoint)
        # An evaluation of the checkpoint need not have the training data to compare with.
        checkpoint[TRAINED_STEPS] = self.data.trained_steps()

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(checkpoint)
        self._trained_steps = checkpoint.get(TRAINED_STEPS)

    def _warn_of_longer_series(self) -> None:
        """Warn once of evaluated series that are longer than all training series."""
        trained = self.data.trained_steps() if self.trainer.state.fn == "fit" else self._trained_steps
        evaluated = self.data.evaluated_steps()
        if not self._warned and trained is not None and evaluated > trained:
            self._warned = True
            log.warning(
                "the longest evaluated series has %s steps, but the longest training series %s: answers about longer "
                "series are less reliable", f"{evaluated:,}", f"{trained:,}",
            )  # fmt: skip

    @override
    def on_validation_epoch_start(self) -> None:
        self._warn_of_longer_series()
        super().on_validation_epoch_start()

    on_test_epoch_start = on_validation_epoch_start

    @override
    def on_predict_start(self) -> None:
        super().on_predict_start()
        self._warn_of_longer_series()
