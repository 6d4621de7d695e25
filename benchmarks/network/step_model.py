"""Models the duration of a step whose gradients cross a network, with few parameters, and fits the model.

Units are seconds, bytes, and bits per second. In data parallel training each process computes on its own samples, and
then all sum their gradients. The ring algorithm needs the fewest bytes: 2 (n-1)/n times the gradients through each of n
processes (P. Patarasuk and X. Yuan, Bandwidth optimal all-reduce algorithms for clusters of workstations, 2009).
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

BACKWARD_SHARE = 2 / 3
"""Share of the backward pass in a step's computation: it has twice the products of the forward pass. Communication
can be hidden behind it at best.
"""


def ring_bytes(gradient_bytes: float, processes: int) -> float:
    """Return the bytes that each process sends (and receives, at the same time) to sum gradients of so many bytes."""
    return 2 * (processes - 1) / processes * gradient_bytes


def step_seconds(compute: float, communication: float, hidden_share: float = 0.0) -> float:
    """Return the seconds of a step.

    Args:
        compute: seconds of computation of a process.
        communication: seconds of communication of the gradients.
        hidden_share: share of `compute` that can overlap with communication: 0 is none, `BACKWARD_SHARE` is the whole
            backward pass. The rest of the communication lengthens the step.
    """
    return compute + max(0.0, communication - hidden_share * compute)


class Cluster(NamedTuple):
    """Nodes with GPUs; each GPU computes a part of the batch."""

    nodes: int
    gpus: int  # of each node
    inside: float  # bits per second between GPUs of a node
    between: float  # bits per second of each node's link to the others

    @property
    def size(self) -> int:
        """Number of GPUs of all nodes."""
        return self.nodes * self.gpus

    def communication(self, gradient_bytes: float) -> float:
        """Return the seconds to sum the gradients in two stages.

        Each GPU of a node gets the node's sum of its part of the gradients. The parts are summed between the nodes, all
        parts of a node at the same time over its single link. Then each GPU gathers the parts of its node.
        """
        # Scatter and gather of the ring, one before and one after the stage between nodes. 8 bits per byte.
        inside = 8 * ring_bytes(gradient_bytes, self.gpus) / self.inside
        return inside + 8 * ring_bytes(gradient_bytes, self.nodes) / self.between

    def speedup(self, compute: float, gradient_bytes: float, hidden_share: float = 0.0) -> float:
        """Return the samples per second, relative to a single GPU with the same batch per GPU."""
        return self.size * compute / step_seconds(compute, self.communication(gradient_bytes), hidden_share)


class Observed(NamedTuple):
    """Measured step on a network."""

    seconds: float
    bandwidth: float = math.inf  # bits per second
    delay: float = 0.0  # seconds one way


class StepModel(NamedTuple):
    """t = compute + max(0, 8 bytes / bandwidth + waits x delay - absorbed)."""

    compute: float  # seconds of a step on an unlimited network
    bytes: float  # per step, one way
    waits: float = 0.0  # number of times that a step waits for the other end
    absorbed: float = 0.0
    """Seconds of the communication that do not lengthen the step: they overlap with computation, or an unlimited
    network needs them, too, and `compute` includes them. A fit cannot distinguish the two.
    """

    def seconds(self, bandwidth: float = math.inf, delay: float = 0.0) -> float:
        """Return the seconds of a step on a network of so many bits per second and seconds one way."""
        return self.compute + max(0.0, 8 * self.bytes / bandwidth + self.waits * delay - self.absorbed)


def fit(observed: Sequence[Observed]) -> StepModel:
    """Return the model with the least squares of relative errors.

    `waits` is 0 if all delays are equal, or if its best value would be negative.

    `absorbed` can be fitted with observations of an unlimited network and of several slow networks: the line through
    the slow networks then starts below the step on the unlimited network. Otherwise it is 0, and part of `compute`.

    Raises:
        ValueError: too few different bandwidths or delays to determine the parameters.
    """
    free = [point.seconds for point in observed if math.isinf(point.bandwidth) and not point.delay]
    slow = [point for point in observed if not math.isinf(point.bandwidth)]
    if free and len({point.bandwidth for point in slow}) > 1:
        line, compute = _line(slow), float(np.mean(free))
        # The line of the slow networks starts below the unlimited network's step: so much of the communication does
        # not lengthen a step.
        if line.compute < compute:
            return line._replace(compute=compute, absorbed=compute - line.compute)
    return _line(observed)


def _line(observed: Sequence[Observed]) -> StepModel:
    line = _least_squares(observed, 3 if len({point.delay for point in observed}) > 1 else 2)
    # A negative number of waits is noise; without the parameter the others are fitted better.
    return line if line.waits >= 0 else _least_squares(observed, 2)


def _least_squares(observed: Sequence[Observed], unknown: int) -> StepModel:
    bandwidths, delays = ({getattr(point, name) for point in observed} for name in ("bandwidth", "delay"))
    rows = [[1.0, 8 / point.bandwidth, point.delay][:unknown] for point in observed]
    # Division by the seconds makes errors relative; columns are scaled to similar size, because bits are billions.
    columns = np.array(rows).reshape(-1, unknown) / np.array([[point.seconds] for point in observed]).reshape(-1, 1)
    scale = np.abs(columns).max(axis=0, initial=1e-300)
    if np.linalg.matrix_rank(columns / scale) < unknown:
        raise ValueError(
            f"{len(observed)} observations with {len(bandwidths)} bandwidths and {len(delays)} delays do not tell "
            "computing, bytes and waits apart; expected at least two bandwidths, and delays that change apart from them"
        )
    found = np.linalg.lstsq(columns / scale, np.ones(len(rows)), rcond=None)[0] / scale
    return StepModel(*(float(number) for number in found))
