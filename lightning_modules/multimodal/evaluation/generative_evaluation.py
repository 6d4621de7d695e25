"""Evaluates generated answers, with the modality and without it."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn
from typing_extensions import TypeVar, override

from datamodules.multimodal.batch import ChatEvaluationBatch
from datamodules.multimodal.interface import GradedData
from engine.number_check import check_number
from engine.telemetry.graded_answers import GradedAnswer, write_graded_answers
from engine.telemetry.sample_previews import SamplePreview
from lightning_modules.multimodal.evaluation.answer_metrics import BLIND, MODEL, Answer, AnswerMetrics
from lightning_modules.multimodal.evaluation.evaluator import Evaluator, PredictionLine

if TYPE_CHECKING:
    from lightning_modules.multimodal.language_module import LanguageModule

ModuleT = TypeVar(
    "ModuleT", bound="LanguageModule[GradedData]", default="LanguageModule[GradedData]", contravariant=True
)
"""Type of the evaluated module."""


class GenerativeEvaluation(nn.Module, Evaluator[ModuleT]):
    """Grades the answers that a model generates.

    Each question is answered twice: with the modality, and blind, without its content. A model often guesses right and
    reaches a good perplexity without it, so the metrics mean little unless both are known.

    Args:
        data: names of the outcomes, kinds of questions and baselines.
        dtype: format in which the metrics are summed, see OutcomeRate.
        max_new_tokens: maximum length of an answer.
        baseline_answers: returns {name: answer} of the baselines to a sample; they are graded beside the model's.
    """

    def __init__(
        self,
        data: GradedData,
        dtype: torch.dtype,
        max_new_tokens: int,
        baseline_answers: Callable[[int], dict[str, str]] = lambda sample: {},
    ) -> None:
        super().__init__()
        self.metrics = AnswerMetrics(data.outcomes, data.kinds, data.baselines, dtype)
        self.main_metric = data.outcomes[0]
        self.max_new_tokens = max_new_tokens
        self._baseline_answers = baseline_answers

    @override
    def begin(self) -> None:
        self.metrics.begin()

    @override
    def update(self, module: ModuleT, batch: ChatEvaluationBatch) -> None:
        rows_by_kind: dict[str, list[int]] = {}
        for row, sample in enumerate(batch.rows.samples.tolist()):
            rows_by_kind.setdefault(module.data.kind(sample), []).append(row)
        texts = {}
        for system, inputs in ((MODEL, batch.encoder_input), (BLIND, module.modality.blinded(batch.encoder_input))):
            # Computed once for both the loss and the answer.
            features = module.features(inputs)
            states = module.states(batch.rows, features)
            for kind, rows in rows_by_kind.items():
                # In an evaluation each row holds a single chat, so a row has one kind.
                loss, count = module.language_model.loss(states[rows], batch.rows.labels[rows])
                # Sums and counts, not means: ranks and batches have different numbers of tokens.
                self.metrics.add_loss(system, kind, float(loss), float(count))
            texts[system] = self.answer(module, batch, features)
        for sample, text, blind in zip(batch.prompts.samples.tolist(), texts[MODEL], texts[BLIND], strict=True):
            if sample < 0:  # padding of the batch
                continue
            for system, answer in {MODEL: text, BLIND: blind, **self._baseline_answers(sample)}.items():
                self.metrics.add_outcomes(system, module.data.grade(sample, answer))
            self.metrics.add_answer(Answer(sample, text, blind))

    @override
    def compute(self, module: ModuleT) -> dict[str, float]:
        metrics = {}
        for system, values in self.metrics.compute():
            prefix = "" if system == MODEL else f"baseline/{system}/"
            metrics.update({prefix + name: value for name, value in values.items()})
        return metrics

    @override
    def previews(self, module: ModuleT) -> list[Callable[[], SamplePreview]]:
        answers = self.metrics.answers(module.preview_reservoir.number)
        return [partial(module.data.sample_preview, *answer) for answer in answers]

    @override
    def report(self, module: ModuleT) -> None:
        # All ranks gather before the condition, because it is a collective.
        answers = self.metrics.answers()
        if module.trainer.is_global_zero:
            folder = module.trainer.default_root_dir
            module.data.write_test_report(folder, answers)
            write_graded_answers(Path(folder), f"test/{self.main_metric}", self._graded_answers(module.data, answers))

    def _graded_answers(self, data: GradedData, answers: Iterable[Answer]) -> Iterator[GradedAnswer]:
        """Yield the answers that the main metric counts."""
        for sample, text, _ in answers:
            reached, possible = data.grade(sample, text).get(self.main_metric, (0.0, 0.0))
            # The main metric may count some kinds of questions only.
            if possible:
                question, expected = data.question_text(sample), data.right_answer(sample)
                yield GradedAnswer(sample, question, expected, text, float(reached), float(possible))

    @override
    def predict(self, module: ModuleT, batch: ChatEvaluationBatch) -> list[PredictionLine]:
        lines = dict(self.lines(module, batch, self.answer(module, batch, module.features(batch.encoder_input))))
        answers = {row: [line["answer"]] for row, line in lines.items() if line["answer"] is not None}
        # A later question of a conversation holds the answers before it, so turns are generated one after the other.
        while (turn := module.data.next_turns(answers)) is not None:
            turn = module.transfer_batch_to_device(turn, module.device, 0)
            module.check_context(turn)
            # All of them may have been skipped.
            texts = self.answer(module, turn, module.features(turn.encoder_input)) if len(turn.prompts.samples) else []
            for row, line in self.lines(module, turn, texts):
                given_answers = answers[row] if line["answer"] is None else [*answers[row], line["answer"]]
                lines[row] = {**line, "answers": given_answers}
                answers[row] = given_answers
                if line["answer"] is None:
                    # Without an answer to this turn, the conversation has no next one.
                    del answers[row]
        return sorted(lines.items())

    def answer(self, module: ModuleT, batch: ChatEvaluationBatch, features: Any) -> list[str]:
        """Return the model's answers to a batch, in the order of its prompts."""
        return module.generate(batch.prompts, features, self.max_new_tokens)

    def lines(self, module: ModuleT, batch: ChatEvaluationBatch, texts: list[str]) -> list[PredictionLine]:
        """Return the lines of predictions for the answers to a batch, and for its skipped samples."""
        rows = zip(batch.prompts.samples.tolist(), texts, strict=True)
        answered = [(row, {**module.data.describe(row), "answer": text}) for row, text in rows if row >= 0]
        # A skipped sample has a line of its own, so that each line is known by its number in the file.
        skipped = ((row, {**module.data.describe(row), "answer": None, "why": why}) for _, why, row in batch.skipped)
        return sorted([*answered, *skipped], key=lambda line: line[0])


def check_max_new_tokens(max_new_tokens: int) -> int:
    """Return the argument.

    Raises:
        ValueError: it is below 1.
    """
    check_number("model.init_args.max_new_tokens", max_new_tokens, at_least=1)
    return max_new_tokens
