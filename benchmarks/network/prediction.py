"""Prints the predictions of step_model.py for clusters that are not at hand, beside the results that the guides report.

Nothing here is measured. The guides report results without the network, the bytes or the algorithm. The table lists the
assumptions made instead.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

from rich import box
from rich.table import Table

from benchmarks.network.step_model import BACKWARD_SHARE, Cluster, ring_bytes, step_seconds


class Reported(NamedTuple):
    """Nodes and GPUs, and a guide's result for them."""

    nodes: int
    gpus: int  # of each node
    speedup: str = ""


REPORTED = (
    Reported(1, 2, "1.87x"),
    Reported(1, 4, "3.6x"),
    Reported(2, 2),
    Reported(1, 8, "6.8x"),
    Reported(2, 4, "6.4x: 1.78x of 1 x 4"),
    Reported(2, 8, "12.8x (document QA)"),
    Reported(4, 4),
)
"""Speed-ups of the temporal guide (docs/from-the-guides.md): A100 of 40 GB, 16 samples per GPU
and step, 15 samples per second on one GPU.

The last column is its 96 samples per second on two nodes over 15; 96 over its 54 on one node is the 1.78 that it
reports. 12.8 is from the guide for document QA (LoRA, 6 h to 28 min), without a step time.
"""


class Shards(NamedTuple):
    """Bytes of a step with FSDP2 and tensor parallelism, all in float32, from counted collectives.

    `collective_bytes.py` counts: FSDP2 gathers a layer twice and the other weights once, and scatters the sums of all
    gradients once. Tensor parallelism sums the states of a layer seven times: after attention and MLP in the forward
    pass, and for each of the five layers divided by outputs in the backward pass.
    """

    layers: int = 24
    width: int = 896
    in_layers: float = 358e6
    """Parameters in layers, of Qwen2.5-0.5B."""
    others: float = 136e6
    """Parameters of embeddings, which the output layer shares."""
    tokens: int = 16 * 512
    """Tokens of a step on a GPU: the guide's 16 samples, of 512 tokens each (assumed)."""

    @property
    def gathered(self) -> float:
        """Bytes of the weights that FSDP2 gathers in a step: those of layers in the forward and the backward pass."""
        return 4 * (2 * self.in_layers + self.others)

    @property
    def scattered(self) -> float:
        """Bytes of the gradients whose sums FSDP2 scatters in a step."""
        return 4 * (self.in_layers + self.others)

    @property
    def weights(self) -> float:
        """Bytes to all-reduce that would take as long as FSDP2's gathers and scatters: an all-reduce is two of them."""
        return (self.gathered + self.scattered) / 2

    def states(self, ranks: int) -> float:
        """Return the bytes that a group of ranks all-reduces in a step, for the tokens of all its ranks."""
        return 4 * 7 * self.layers * self.width * self.tokens * ranks

    def speedup(self, cluster: Cluster, compute: float, ranks: int, hidden_share: float) -> float:
        """Return the samples per second, relative to a GPU that holds the whole model, with groups of `ranks`.

        A group is within a node. Its sums wait in the middle of a layer, so no computation hides them.
        """
        waits = 8 * ring_bytes(self.states(ranks), ranks) / cluster.inside
        # The ranks of a group send their shards at the same time, so a group has their joint bandwidth.
        groups = cluster._replace(gpus=cluster.gpus // ranks, inside=cluster.inside * ranks)
        gathers = groups.communication(self.weights)
        return cluster.size * compute / (step_seconds(compute, gathers, hidden_share) + waits)


class Assumptions(NamedTuple):
    """Assumptions where the guides state nothing."""

    compute: float = 16 / 15
    """Seconds of a step on one GPU: the guide's 16 samples at 15 per second."""
    gradients: tuple[float, ...] = (4 * 494e6, 4 * 1e6)
    """Bytes of fp32 gradients: all weights of Qwen2.5-0.5B; an encoder and a projector before a frozen model."""
    inside: float = 200e9
    """Bits per second between GPUs of a node: the 25 GB/s of PCIe 4.0 x16, which fit the guide's 1.87x. NVLink has ten
    times as many, with which the time inside a node is negligible.
    """
    between: tuple[float, ...] = (100e9, 10e9)
    """Bits per second of a node's link: InfiniBand EDR or 100 GbE; and 10 GbE, the minimum of the guide."""
    shards: "Shards" = Shards()
    """Model whose weights FSDP2 shards, and whose layers tensor parallelism divides over two ranks."""


def predicted(assumed: Assumptions, reported: Sequence[Reported] = REPORTED) -> dict[str, Any]:
    """Return speed-ups over one GPU for each size of gradients and each link, without and with maximal overlap."""
    rows = []
    for setup in reported:
        cells = []
        for size in assumed.gradients:
            for link in assumed.between:
                cluster = Cluster(setup.nodes, setup.gpus, assumed.inside, link)
                low, high = (cluster.speedup(assumed.compute, size, share) for share in (0.0, BACKWARD_SHARE))
                cells.append({"gradient_bytes": size, "between": link, "low": low, "high": high})
        for ranks in (1, 2):
            for link in assumed.between:
                cluster = Cluster(setup.nodes, setup.gpus, assumed.inside, link)
                speedups = [
                    assumed.shards.speedup(cluster, assumed.compute, ranks, share) for share in (0.0, BACKWARD_SHARE)
                ]
                cells.append({"tensor_parallel": ranks, "between": link, "low": speedups[0], "high": speedups[1]})
        rows.append({**setup._asdict(), "cells": cells})
    return {"name": "predicted", "measured": False, "assumptions": assumed._asdict(), "rows": rows, "goals": []}


def table(result: dict[str, Any]) -> Table:
    """Return a table with a row for each number of nodes and GPUs."""
    from benchmarks.network.tables import rate

    assumed = Assumptions(**result["assumptions"])
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title="PREDICTED, not measured: times as fast as one GPU",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="none",
    )
    sheet.add_column("nodes x GPUs", no_wrap=True)
    sheet.add_column("the guides")
    for size in assumed.gradients:
        for link in assumed.between:
            sheet.add_column(f"{size / 1e6:,.0f} MB,\n{rate(link)}", justify="right", no_wrap=True)
    for row in result["rows"]:
        cells = [f"{cell['low']:.2f} to {cell['high']:.2f}" for cell in row["cells"] if "gradient_bytes" in cell]
        sheet.add_row(f"{row['nodes']} x {row['gpus']}", row["speedup"], *cells)
    sheet.caption = "\n".join(
        [
            "range: from no overlap of communication and computation to the most that the backward pass "
            f"({BACKWARD_SHARE:.0%} of the step) can hide.",
            f"assumed: a step of {assumed.compute:.3g} s with the same number of samples on each GPU; gradients of "
            + " or ".join(f"{size / 1e6:,.0f} MB" for size in assumed.gradients)
            + " per step",
            f"(fp32; the guides do not state which weights they train); {rate(assumed.inside)} between GPUs of a node "
            "(PCIe 4.0 x16),",
            "the column's bandwidth between nodes; summed inside nodes first, then between them; no time for latency, "
            "data loading or different GPUs.",
            "a guide's result with the name of a family is for that family, whose step differs from the assumed step.",
            "--help lists the options for other assumptions.",
        ]
    )
    return sheet


def shards_table(result: dict[str, Any]) -> Table:
    """Return a table of FSDP2 and tensor parallelism, with a row for each number of nodes and GPUs."""
    from benchmarks.network.tables import rate

    assumed = Assumptions(**result["assumptions"])
    shards = Shards(*assumed.shards)
    sheet = Table(
        box=box.SIMPLE_HEAD,
        title="PREDICTED, not measured: FSDP2 and tensor parallelism",
        title_justify="left",
        title_style="bold",
        caption_justify="left",
        caption_style="none",
    )
    sheet.add_column("nodes x GPUs", no_wrap=True)
    for kind in ("FSDP2", "TP 2, FSDP2"):
        for link in assumed.between:
            sheet.add_column(f"{kind},\n{rate(link)}", justify="right", no_wrap=True)
    for row in result["rows"]:
        cells = [f"{cell['low']:.2f} to {cell['high']:.2f}" for cell in row["cells"] if "tensor_parallel" in cell]
        sheet.add_row(f"{row['nodes']} x {row['gpus']}", *cells)
    sheet.caption = "\n".join(
        [
            "times as fast as one GPU that holds the model.",
            f"a step of {assumed.compute:.3g} s and {shards.tokens:,} tokens on each GPU; Qwen2.5-0.5B in float32.",
            f"TP 2: pairs of ranks sum {shards.states(2) / 1e9:.2f} GB per step; FSDP2 moves as much as an all-reduce",
            f"of {shards.weights / 1e9:.2f} GB.",
        ]
    )
    return sheet
