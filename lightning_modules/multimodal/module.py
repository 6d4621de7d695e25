"""What the multimodal families share: features of another modality, read by a language model.

    batch -> encoder -> projector -> features in their placeholders -> language model -> loss on what it has to say
"""

from abc import abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import torch
from lightning.pytorch.strategies import FSDPStrategy, ModelParallelStrategy
from torch import Tensor
from torch.optim import Optimizer

from datamodules.multimodal.batch import Examples, Prompts, Questions, Rows
from engine.exact_mean import LossSum
from lightning_modules.multimodal.composition import ComposedModule
from lightning_modules.multimodal.evaluation import BLIND, MODEL, Answer, Evaluation
from lightning_modules.multimodal.flops import LanguageModelFlops, language_model_flops, trains
from lightning_modules.multimodal.language_model import LanguageModelSettings
from lightning_modules.multimodal.left_out import LeftOutOfEvaluation, LeftOutSamples, require_few
from lightning_modules.multimodal.splice import splice


class Features(NamedTuple):
    """What stands in the placeholders."""

    vectors: Tensor  # [F, C]
    counts: Tensor  # [S] int64, how many of them each sample has


class MultimodalModule(ComposedModule):
    """Learns to answer. A family says what its features are made of, and what it looks like when there is nothing.

    Every evaluation is done twice, with the modality and `blind`, without it: what a model says without having looked
    is often right, and its perplexity good.

    Args:
        language_model: the language model that reads the features.
        max_new_tokens: where an answer that is written in an evaluation ends at the latest.
        composition: see ComposedModule and LockstepModule.
    """

    terms_per_sample = 32  # tokens of an answer

    shown_answers = 0
    """See `show`."""

    features_name = "feature_tokens"
    """What Throughput calls the tokens in which features stand."""

    evaluation: Evaluation

    def __init__(self, language_model: LanguageModelSettings, max_new_tokens: int = 64, **composition: Any) -> None:
        super().__init__(language_model, **composition)
        if max_new_tokens < 1:
            raise ValueError(f"model.init_args.max_new_tokens must be at least 1, got {max_new_tokens}")
        self.max_new_tokens = max_new_tokens
        self.left_out, self.left_out_of_evaluation = LeftOutSamples(self.votes), LeftOutOfEvaluation()

    # -- what a family says ------------------------------------------------------------------------------------------

    @abstractmethod
    def feature_counts(self, modality: Any) -> Tensor:
        """[S] int64: how many features the projector makes of each sample."""

    @abstractmethod
    def blinded(self, modality: Any) -> Any:
        """The same samples with nothing in them, with as many features."""

    def feature_flops(self, examples: Examples) -> int | None:
        """What encoder and projector take of a part, forward and backward, see flops.py; None: nobody has counted."""
        return None

    def baseline_answers(self, sample: int) -> dict[str, str]:
        """{name: what somebody else answers}, to be graded beside the model."""
        return {}

    def show(self, answers: list[Answer]) -> None:
        """Called on the first process after a validation, with the answers to its first `shown_answers` samples."""

    def report(self, answers: list[Answer]) -> None:
        """Called on the first process after a test, with the answers of all processes in the order of the samples."""

    def build(self) -> None:
        super().build()
        # Apple's GPUs have no double precision.
        precise = torch.float32 if self.trainer.strategy.root_device.type == "mps" else torch.float64
        self.evaluation = Evaluation(self.data.outcomes, self.data.kinds, self.data.baselines, precise)

    @property
    def sharded(self) -> bool:
        return isinstance(self.trainer.strategy, FSDPStrategy)

    # -- training ----------------------------------------------------------------------------------------------------

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if stage == "fit":
            self.left_out.open()

    def on_train_batch_start(self, batch: Sequence[Examples], batch_idx: int) -> None:
        super().on_train_batch_start(batch, batch_idx)
        self.left_out.cast(one for part in batch for one in part.left_out)

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        super().on_before_optimizer_step(optimizer)
        if self.is_log_step:  # in others the counts are not waited for
            for reason, total in self._require_few_left_out().items():
                if self._may_leave_out[reason]:
                    self.log(f"train/{reason}_samples", float(total), on_step=True, on_epoch=False, batch_size=1)

    def on_train_epoch_end(self) -> None:
        self._require_few_left_out()

    def _require_few_left_out(self) -> dict[str, int]:
        totals = self.left_out.totals
        require_few(totals["unusable"], self.data.max_unusable, "the training")
        return totals

    @property
    def _may_leave_out(self) -> dict[str, bool]:
        return {"unusable": self.data.max_unusable > 0, "too_long": self.data.too_long == "drop"}

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

    def features(self, modality: Any) -> Features:
        return Features(self.projector(self.encoder(modality)), self.feature_counts(modality))

    def _score(self, rows: Rows, features: Features) -> tuple[Tensor, Tensor]:
        """Sum and number of the loss terms of the supervised tokens."""
        return self.language_model.loss(self._states(rows, features), rows.labels)

    def _states(self, rows: Rows, features: Features) -> Tensor:
        return self.language_model.hidden_states(self._embed(rows, features), rows.positions)

    def _embed(self, chats: Rows | Prompts, features: Features) -> Tensor:
        embeddings = self.language_model.embed(chats.tokens)
        return splice(embeddings, chats, *features, self.data.tokenizer.placeholder)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._begin_evaluation()

    def validation_step(self, batch: Questions, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        self._end_evaluation("val")
        if self.shown_answers and not self.trainer.sanity_checking:
            answers = self.evaluation.answers(self.shown_answers)
            if self.trainer.is_global_zero:
                self.show(answers)

    def on_test_epoch_start(self) -> None:
        self._begin_evaluation()

    def test_step(self, batch: Questions, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_test_epoch_end(self) -> None:
        self._end_evaluation("test")
        answers = self.evaluation.answers()
        if self.trainer.is_global_zero:
            self.report(answers)

    def _begin_evaluation(self) -> None:
        self.evaluation.begin()
        self.left_out_of_evaluation.begin()

    def _evaluate(self, batch: Questions) -> None:
        self.left_out_of_evaluation.take(batch.left_out)
        texts = {}
        kinds: dict[str, list[int]] = {}
        for row, sample in enumerate(batch.rows.samples.tolist()):
            kinds.setdefault(self.data.kind(sample), []).append(row)
        for system, modality in ((MODEL, batch.modality), (BLIND, self.blinded(batch.modality))):
            features = self.features(modality)
            states = self._states(batch.rows, features)
            for kind, rows in kinds.items():
                loss, count = self.language_model.loss(states[rows], batch.rows.labels[rows])
                self.evaluation.take_loss(system, kind, float(loss), float(count))
            texts[system] = self._write(batch.prompts, features)
        for sample, text, blind in zip(batch.prompts.samples.tolist(), texts[MODEL], texts[BLIND], strict=True):
            if sample >= 0:
                said = {MODEL: text, BLIND: blind, **self.baseline_answers(sample)}
                for system, answer in said.items():
                    self.evaluation.take(system, self.data.grade(sample, answer))
                self.evaluation.keep(Answer(sample, text, blind))

    def _write(self, prompts: Prompts, features: Features) -> list[str]:
        tokenizer = self.data.tokenizer
        # Where processes hold parts of the weights, none may stop before the others.
        together = self.sharded or isinstance(self.trainer.strategy, ModelParallelStrategy)
        answers = self.language_model.generate(
            self._embed(prompts, features), prompts.mask, self.max_new_tokens, [tokenizer.end_of_turn], together
        )
        return [tokenizer.decode(answer) for answer in answers]

    def _end_evaluation(self, stage: str) -> None:
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            self.log(f"{stage}/unusable_samples", float(unusable), batch_size=1)
            require_few(unusable, self.data.max_unusable, "the evaluation")
        for system, figures in self.evaluation.figures():
            prefix = f"{stage}/" if system == MODEL else f"{stage}/baseline/{system}/"
            for name, value in figures.items():
                shown = stage == "val" and system == MODEL and name == self.data.outcomes[0]
                value = torch.tensor(value, dtype=torch.float32, device=self.device)
                self.log(prefix + name, value, prog_bar=shown, batch_size=1)

    # -- prediction --------------------------------------------------------------------------------------------------

    def on_predict_epoch_start(self) -> None:
        self.left_out_of_evaluation.begin()

    def on_predict_epoch_end(self) -> None:
        if self.data.max_unusable:
            unusable = self.left_out_of_evaluation.totals(self.device)["unusable"]
            require_few(unusable, self.data.max_unusable, "the questions")

    def predict_step(self, batch: Questions, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        self.left_out_of_evaluation.take(batch.left_out)
        texts = self._write(batch.prompts, self.features(batch.modality))
        answers = zip(batch.prompts.samples.tolist(), texts, strict=True)
        said = [(row, {**self.data.describe(row), "answer": text}) for row, text in answers if row >= 0]
        # Nobody must wonder which line an answer is to.
        unanswered = ((row, {**self.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.left_out)
        return sorted([*said, *unanswered], key=lambda line: line[0])

    # -- checkpoints -------------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        super().on_save_checkpoint(checkpoint)
        if self._trainer is not None and self.trainer.state.fn == "fit":
            checkpoint["left_out"] = self.left_out.totals

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.left_out.go_on_from(checkpoint.get("left_out", {}))
        super().on_load_checkpoint(checkpoint)
