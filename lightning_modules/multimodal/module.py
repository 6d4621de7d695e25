"""Answers in words, and is evaluated with the modality and without it.

    batch -> encoder -> projector -> features in their placeholders -> language model -> what it writes
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from datamodules.multimodal.batch import Prompts, Questions
from engine.examples import Example
from lightning_modules.multimodal.chat_module import ChatModule
from lightning_modules.multimodal.evaluation import BLIND, MODEL, Answer, Evaluation
from lightning_modules.multimodal.splice import Features


class MultimodalModule(ChatModule):
    """Learns to answer. A family says what its features are made of, and what it looks like when there is nothing.

    Every evaluation is done twice, with the modality and `blind`, without it: what a model says without having looked
    is often right, and its perplexity good.
    """

    evaluation: Evaluation

    # -- what a family says ------------------------------------------------------------------------------------------

    def baseline_answers(self, sample: int) -> dict[str, str]:
        """{name: what somebody else answers}, to be graded beside the model."""
        return {}

    def report(self, answers: list[Answer]) -> None:
        """Called on the first process after a test, with the answers of all processes in the order of the samples."""

    def build(self) -> None:
        super().build()
        # Apple's GPUs have no double precision.
        precise = torch.float32 if self.trainer.strategy.root_device.type == "mps" else torch.float64
        self.evaluation = Evaluation(self.data.outcomes, self.data.kinds, self.data.baselines, precise)

    # -- evaluation --------------------------------------------------------------------------------------------------

    def on_validation_epoch_start(self) -> None:
        self._begin_evaluation()

    def validation_step(self, batch: Questions, batch_idx: int) -> None:
        self._evaluate(batch)

    def on_validation_epoch_end(self) -> None:
        self._end_evaluation("val")

    def examples(self) -> list[Callable[[], Example]]:
        """Questions with the right answers, the model's, and what it says blind."""
        answers = self.evaluation.answers(self.shown_samples.number)
        return [partial(self.data.example, *answer) for answer in answers]

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

    def _evaluate(self, batch: Questions) -> None:
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
        answers = self.language_model.generate(
            self._embed(prompts, features), prompts.mask, self.max_new_tokens, [tokenizer.end_of_turn], self.in_step
        )
        return [tokenizer.decode(answer) for answer in answers]

    def _end_evaluation(self, stage: str) -> None:
        for system, figures in self.evaluation.figures():
            prefix = f"{stage}/" if system == MODEL else f"{stage}/baseline/{system}/"
            for name, value in figures.items():
                shown = stage == "val" and system == MODEL and name == self.data.outcomes[0]
                value = torch.tensor(value, dtype=torch.float32, device=self.device)
                self.log(prefix + name, value, prog_bar=shown, batch_size=1)

    # -- prediction --------------------------------------------------------------------------------------------------

    def predict_step(self, batch: Questions, batch_idx: int) -> list[tuple[int, dict[str, Any]]]:
        texts = self._write(batch.prompts, self.features(batch.modality))
        answers = zip(batch.prompts.samples.tolist(), texts, strict=True)
        said = [(row, {**self.data.describe(row), "answer": text}) for row, text in answers if row >= 0]
        # Nobody must wonder which line an answer is to.
        unanswered = ((row, {**self.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.left_out)
        return sorted([*said, *unanswered], key=lambda line: line[0])
