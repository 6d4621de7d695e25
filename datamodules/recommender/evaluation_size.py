"""Checks whether an evaluation is meaningful: the number of users it ranks, and of targets that were trained."""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from datamodules.recommender.events import Events, Integers, user_chunks
from datamodules.recommender.splits import SplitExamples, Splits

MIN_USERS = 100
"""Users below which metrics are reported as noise: with 100, the standard error of HR@10 is up to 0.05."""

LARGEST_UNTRAINED_SHARE = 0.2
"""Share of targets without a training event above which metrics are reported as limited by the split."""


class EvaluationSize(NamedTuple):
    """How many users an evaluation ranks, and how many of their targets no model can have learned."""

    users: int  # users that are ranked, one target each
    untrained: int  # targets whose item has no training event, so that no model can have learned it

    @property
    def problem(self) -> str:
        """What is wrong with the numbers, for a warning; empty if nothing is."""
        problems = []
        if self.users < MIN_USERS:
            # A hit rate is a mean of zeros and ones, whose standard deviation is at most 0.5.
            error = 0.5 / max(self.users, 1) ** 0.5
            problems.append(f"only {self.users} users (a metric's standard error is up to {error:.2f})")
        if self.untrained > LARGEST_UNTRAINED_SHARE * self.users:
            share = self.untrained / self.users
            problems.append(f"{self.untrained} of {self.users} targets ({share:.0%}) whose items are never trained")
        return " and ".join(problems)


def evaluation_warnings(events: Events, splits: Splits, with_features: bool = False) -> Iterator[str]:
    """Yield a sentence for each evaluation with few users or with many targets that are never trained.

    With features of the items, a model ranks the latter, too, so only few users are reported.
    """
    if not len(splits.validation.users) and not len(splits.test.users):
        return
    if with_features:
        trained: Integers = np.ones(events.num_items + 1, np.int8)
    else:
        trained = trained_items(events, splits.train_end)
    for name, examples, consequence in (
        ("validation", splits.validation, "; best.ckpt and EarlyStopping follow them"),
        ("test", splits.test, ""),
    ):
        problem = evaluation_size(examples, events, trained).problem
        if problem:
            yield f"the {name} has {problem}, so its metrics are not reliable{consequence}"


def evaluation_size(examples: SplitExamples, events: Events, trained: Integers) -> EvaluationSize:
    """Count the users and the targets without a training event.

    Args:
        examples: examples of an evaluation.
        events: events of all users.
        trained: [num_items + 1], not zero for items with a training event; from `trained_items`.
    """
    return EvaluationSize(len(examples.users), int(np.sum(trained[events.items[examples.ends]] == 0)))


def trained_items(events: Events, train_end: Integers, chunk: int = 1 << 22) -> Integers:
    """Return int8 [num_items + 1]: 1 for each item with a training event.

    Args:
        events: events of all users.
        train_end: int64 [U], end of each user's training part.
        chunk: events processed at once (affects memory, not the result).
    """
    trained = np.zeros(events.num_items + 1, np.int8)
    for first, last in user_chunks(events.offsets, chunk):
        low, high = int(events.offsets[first]), int(events.offsets[last])
        ends = np.repeat(train_end[first:last], np.diff(events.offsets[first : last + 1]))
        trained[events.items[low:high][np.arange(low, high) < ends]] = 1
    return trained
