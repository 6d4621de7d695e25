"""Parses the GPUs of a plan: `nodes=2,gpus=8,gb=80`."""

from typing import NamedTuple

_EXAMPLE = "nodes=2,gpus=8,gb=80"


class Cluster(NamedTuple):
    """GPUs that a model is to be trained on."""

    nodes: int
    gpus: int
    """GPUs of a node."""
    gb: int
    """Memory of a GPU, in 10^9 bytes."""

    @property
    def ranks(self) -> int:
        """World size: a rank for each GPU."""
        return self.nodes * self.gpus


def parse_cluster(text: str) -> Cluster:
    """Parse `nodes=2,gpus=8,gb=80`, in any order; `nodes` and `gpus` are 1 by default.

    Raises:
        ValueError: a part is unknown, missing, repeated or no whole number of 1 or more.
    """
    counts: dict[str, int] = {}
    for part in text.split(","):
        name, equals, number = part.strip().partition("=")
        if name not in Cluster._fields or not equals:
            raise ValueError(f"expected {_EXAMPLE}, found {part.strip()!r} in {text!r}")
        if name in counts:
            raise ValueError(f"{name} is given twice in {text!r}; expected {_EXAMPLE}")
        if not number.isdecimal() or int(number) < 1:
            raise ValueError(f"{name} is {number!r}; expected a whole number of 1 or more, as in {_EXAMPLE}")
        counts[name] = int(number)
    if "gb" not in counts:
        raise ValueError(f"gb, the memory of a GPU, is missing in {text!r}; expected {_EXAMPLE}")
    return Cluster(counts.get("nodes", 1), counts.get("gpus", 1), counts["gb"])
