"""What an evaluation finds out: the points of everybody who answered, and the answers."""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

import torch
from torch import nn

from engine.gather import gathered_objects
from engine.shown_samples import chosen
from lightning_modules.multimodal.tally import Tally

MODEL, BLIND = "", "blind"

Outcomes = Mapping[str, tuple[float, float]]
"""{name: (points reached, points possible)}."""


class Answer(NamedTuple):
    """What the model says to a sample, and what it says without the modality."""

    sample: int
    text: str
    blind: str


class Evaluation(nn.Module):
    """Counts of one evaluation after another, added up over processes.

    Args:
        outcomes: all names that a grade may tell.
        kinds: kinds of questions whose losses are told apart, too.
        baselines: who answers beside the model and the model that is blind.
        precise: what is added up in, see Tally.
    """

    def __init__(
        self, outcomes: Sequence[str], kinds: Sequence[str], baselines: Sequence[str], precise: torch.dtype
    ) -> None:
        super().__init__()
        self.systems = (MODEL, BLIND, *baselines)
        names = ["loss", *(f"{kind}/loss" for kind in kinds), *outcomes]
        self.tallies = nn.ModuleDict({_key(system): Tally(names, precise) for system in self.systems})
        self._answers: list[Answer] = []

    def begin(self) -> None:
        """Forgets the one before."""
        self._answers = []
        for tally in self.tallies.values():
            tally.reset()
            tally.update({})  # a process may have no sample to count

    def take_loss(self, system: str, kind: str, loss: float, count: float) -> None:
        """Sum and number of loss terms of questions of a kind; "" where there are no kinds."""
        self.take(system, {"loss": (loss, count), **({f"{kind}/loss": (loss, count)} if kind else {})})

    def take(self, system: str, outcomes: Outcomes) -> None:
        """How right somebody was."""
        self.tallies[_key(system)].update(outcomes)

    def keep(self, answer: Answer) -> None:
        """For reports."""
        self._answers.append(answer)

    def answers(self, number: int | None = None) -> list[Answer]:
        """Those to `number` samples, see engine.shown_samples, or all, of all processes, in the samples' order.

        Every process must ask.
        """
        answers = gathered_objects(_chosen(self._answers, number))
        return _chosen((answer for process in answers for answer in process), number)

    def figures(self) -> Iterator[tuple[str, dict[str, float]]]:
        """(who, {name: figure}), with the perplexity beside each loss. Every process must ask."""
        for system in self.systems:
            figures = self.tallies[_key(system)].compute()
            losses = {name: value for name, value in figures.items() if name.split("/")[-1] == "loss"}
            for name, value in losses.items():
                figures[name.removesuffix("loss") + "perplexity"] = math.exp(min(value, 700.0))
            yield system, figures


def _chosen(answers: Iterable[Answer], number: int | None) -> list[Answer]:
    found = {answer.sample: answer for answer in answers}
    return [found[sample] for sample in (sorted(found) if number is None else chosen(found, number))]


def _key(system: str) -> str:
    return system or "model"
