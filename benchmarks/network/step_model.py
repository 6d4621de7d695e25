"""How long a step takes whose gradients cross a network, as arithmetic: a model with few numbers, and its fit.

Seconds, bytes, and bits a second (as links are sold) throughout. In data parallel training each process computes on
samples of its own, and then all sum their gradients. The ring algorithm does that with the fewest bytes there can be:
2 (n-1)/n times the gradients through each of n processes (P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce
algorithms for clusters of workstations, 2009).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BACKWARD_SHARE = 2 / 3
"""Of a step's computing, as backward does twice the products of forward. Communication can at best hide behind it."""


def ring_bytes(gradient_bytes: float, processes: int) -> float:
    """Bytes that each process sends (and receives, at the same time) to sum gradients of so many bytes."""
    return 2 * (processes - 1) / processes * gradient_bytes


def step_seconds(compute: float, communication: float, hidden_share: float = 0.0) -> float:
    """Seconds of a step.

    Args:
        compute: seconds that one process computes.
        communication: seconds that the gradients are under way.
        hidden_share: of `compute`, during which communication may be under way: 0 is none, and `BACKWARD_SHARE` is all
            of the backward pass. What is left of the communication prolongs the step.
    """
    return compute + max(0.0, communication - hidden_share * compute)


class Cluster(NamedTuple):
    """Nodes with GPUs, of which each computes a part of the batch."""

    nodes: int
    gpus: int  # of each node
    inside: float  # bits a second from each GPU to another of its node
    between: float  # bits a second of each node's link to the others

    @property
    def size(self) -> int:
        return self.nodes * self.gpus

    def communication(self, gradient_bytes: float) -> float:
        """Seconds to sum the gradients in two stages.

        Each GPU of a node gets the node's sum of its part of the gradients, these parts are summed between the nodes,
        all of a node at the same time over its one link, and then each GPU collects the parts of its node.
        """
        inside = 8 * ring_bytes(gradient_bytes, self.gpus) / self.inside
        return inside + 8 * ring_bytes(gradient_bytes, self.nodes) / self.between

    def speedup(self, compute: float, gradient_bytes: float, hidden_share: float = 0.0) -> float:
        """Samples a second, over those of one GPU that has the same batch as each GPU here."""
        return self.size * compute / step_seconds(compute, self.communication(gradient_bytes), hidden_share)


class Observed(NamedTuple):
    """What a step took on some network."""

    seconds: float
    bandwidth: float = math.inf  # bits a second
    delay: float = 0.0  # seconds one way


class StepModel(NamedTuple):
    """t = compute + (8 bytes / bandwidth + waits x delay, as far as it is more than absorbed)."""

    compute: float  # seconds of a step on a free network
    bytes: float  # of a step, one way
    waits: float = 0.0  # times that a step waits for something to come from the other end
    absorbed: float = 0.0
    """Seconds of the communication that do not lengthen the step: it computes meanwhile, or a free network takes them
    too, and `compute` has them in it. A fit cannot tell the two apart."""

    def seconds(self, bandwidth: float = math.inf, delay: float = 0.0) -> float:
        """Of a step on a network of so many bits a second and seconds one way."""
        return self.compute + max(0.0, 8 * self.bytes / bandwidth + self.waits * delay - self.absorbed)


def fit(observed: Sequence[Observed]) -> StepModel:
    """The model with the least squares of relative errors; without `waits` where all delays are the same, or where the
    best would be less than none.

    What is absorbed shows where there are observations of a free network and of several slow ones: the straight line
    through the slow ones then begins lower than a step on the free one. Elsewhere it is 0, and part of `compute`.

    Raises:
        ValueError: too few different bandwidths or delays to tell the model's numbers apart.
    """
    free = [point.seconds for point in observed if math.isinf(point.bandwidth) and not point.delay]
    slow = [point for point in observed if not math.isinf(point.bandwidth)]
    if free and len({point.bandwidth for point in slow}) > 1:
        line, compute = _line(slow), float(np.mean(free))
        if line.compute < compute:
            return line._replace(compute=compute, absorbed=compute - line.compute)
    return _line(observed)


def _line(observed: Sequence[Observed]) -> StepModel:
    line = _least_squares(observed, 3 if len({point.delay for point in observed}) > 1 else 2)
    return line if line.waits >= 0 else _least_squares(observed, 2)


def _least_squares(observed: Sequence[Observed], unknown: int) -> StepModel:
    bandwidths, delays = ({getattr(point, name) for point in observed} for name in ("bandwidth", "delay"))
    rows = [[1.0, 8 / point.bandwidth, point.delay][:unknown] for point in observed]
    # Divided by the seconds, which makes errors relative, and to columns of like size: bits are billions.
    columns = np.array(rows).reshape(-1, unknown) / np.array([[point.seconds] for point in observed]).reshape(-1, 1)
    scale = np.abs(columns).max(axis=0, initial=1e-300)
    if np.linalg.matrix_rank(columns / scale) < unknown:
        raise ValueError(
            f"{len(observed)} observations with {len(bandwidths)} bandwidths and {len(delays)} delays do not tell "
            "computing, bytes and waits apart; expected at least two bandwidths, and delays that change apart from them"
        )
    found = np.linalg.lstsq(columns / scale, np.ones(len(rows)), rcond=None)[0] / scale
    return StepModel(*(float(number) for number in found))
