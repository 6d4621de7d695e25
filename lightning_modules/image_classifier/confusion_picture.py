"""A confusion matrix as a picture."""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMED = 20  # classes of which a picture has names and counts


def require_matplotlib() -> None:
    """Before an hour of training, and on all processes.

    Raises:
        ValueError: matplotlib is not installed.
    """
    if find_spec("matplotlib") is None:
        raise ValueError("confusion matrices are drawn by matplotlib: pip install -e '.[images]'")


def confusion_picture(counts: Tensor, classes: Sequence[str]) -> "Figure":
    """
    Args:
        counts: [K, K], how often an image of class i was taken for class j.
        classes: K names.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes, cells = figure.subplots(), counts.cpu().numpy()
    figure.colorbar(axes.imshow(cells, cmap="Blues"))
    axes.set(xlabel="predicted class", ylabel="true class")
    if len(classes) <= _MOST_NAMED:
        axes.set_xticks(range(len(classes)), classes, rotation=90)
        axes.set_yticks(range(len(classes)), classes)
        for (row, column), count in zip(counts.nonzero().tolist(), counts[counts > 0].tolist(), strict=True):
            colour = "white" if count > cells.max() / 2 else "black"
            axes.text(column, row, count, ha="center", va="center", color=colour)
    return figure
