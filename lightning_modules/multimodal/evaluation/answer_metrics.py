"""Computes metrics of generated answers: sums over ranks, and the answers themselves."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from engine.distributed.collectives import all_gather_objects
from engine.telemetry.sample_previews import select_preview_ids
from lightning_modules.multimodal.evaluation.outcome_metric import OutcomeRate

MODEL, BLIND = "", "blind"
"""Names of the evaluated systems: the model, and the model without the modality."""

Outcomes = Mapping[str, tuple[float, float]]
"""{name: (points reached, points possible)}."""


class Answer(NamedTuple):
    """Answers of the model to a sample."""

    sample: int
    text: str
    blind: str  # the answer without the modality


class AnswerMetrics(nn.Module):
    """Losses and grades of the model and of the systems that it is compared with.

    Args:
        outcomes: names of all outcomes of a grade.
        kinds: kinds of questions with a loss of their own.
        baselines: names of the systems beside the model and the blind model.
        dtype: format of the sums, see OutcomeRate.
    """

    def __init__(
        self, outcomes: Sequence[str], kinds: Sequence[str], baselines: Sequence[str], dtype: torch.dtype
    ) -> None:
        super().__init__()
        self.systems = (MODEL, BLIND, *baselines)
        names = ["loss", *(f"{kind}/loss" for kind in kinds), *outcomes]
        # Modules, so that Lightning moves the metrics' sums to the device of the model.
        self.rates = nn.ModuleDict({_module_key(system): OutcomeRate(names, dtype) for system in self.systems})
        self._answers: list[Answer] = []

    def begin(self) -> None:
        """Discard the previous evaluation."""
        self._answers = []
        for system in self.systems:
            rate = self._rate(system)
            rate.reset()
            rate.update({})  # torchmetrics warns if compute() precedes update(), and a rank may have no sample

    def add_loss(self, system: str, kind: str, loss: float, count: float) -> None:
        """Add the sum and the number of loss terms of questions of a kind; "" if there are no kinds."""
        self.add_outcomes(system, {"loss": (loss, count), **({f"{kind}/loss": (loss, count)} if kind else {})})

    def add_outcomes(self, system: str, outcomes: Outcomes) -> None:
        """Add the points that a system reached."""
        self._rate(system).update(outcomes)

    def add_answer(self, answer: Answer) -> None:
        """Keep an answer for reports and previews."""
        self._answers.append(answer)

    def answers(self, number: int | None = None) -> list[Answer]:
        """Return the answers to `number` samples, or to all, of all ranks, in the order of the samples.

        Collective: every rank must call it.
        """
        # Selected before the gather as well, so that a few previews do not send every answer.
        answers = all_gather_objects(_select_answers(self._answers, number))
        return _select_answers((answer for rank_answers in answers for answer in rank_answers), number)

    def compute(self) -> Iterator[tuple[str, dict[str, float]]]:
        """Yield (system, {name: metric}), with the perplexity beside each loss. Collective."""
        for system in self.systems:
            metrics = self._rate(system).compute()
            losses = {name: value for name, value in metrics.items() if name.split("/")[-1] == "loss"}
            for name, value in losses.items():
                metrics[name.removesuffix("loss") + "perplexity"] = math.exp(min(value, 700.0))  # float64 ends at e^709
            yield system, metrics

    def _rate(self, system: str) -> OutcomeRate:
        rate = self.rates[_module_key(system)]
        assert isinstance(rate, OutcomeRate), "__init__ builds no others"
        return rate


def _select_answers(answers: Iterable[Answer], number: int | None) -> list[Answer]:
    # A distributed sampler may give a sample to two ranks; it counts once.
    by_sample = {answer.sample: answer for answer in answers}
    samples = sorted(by_sample) if number is None else select_preview_ids(by_sample, number)
    return [by_sample[sample] for sample in samples]


def _module_key(system: str) -> str:
    # nn.ModuleDict takes no empty name.
    return system or "model"
