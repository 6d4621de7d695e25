"""Plots a confusion matrix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LABELED = 20  # classes with names and counts in the plot


def plot_confusion_matrix(counts: Tensor, classes: Sequence[str]) -> "Figure":
    """Plot a confusion matrix, with a row for each true class and a column for each predicted class.

    Args:
        counts: [K, K], number of images of class i with prediction j.
        classes: names of the K classes.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes, cells = figure.subplots(), counts.cpu().numpy()
    figure.colorbar(axes.imshow(cells, cmap="Blues"))
    axes.set(xlabel="predicted class", ylabel="true class")
    # More names and counts would overlap.
    if len(classes) <= _MAX_LABELED:
        # A class named `$a_$` is no formula, which matplotlib would parse.
        axes.set_xticks(range(len(classes)), classes, rotation=90, parse_math=False)
        axes.set_yticks(range(len(classes)), classes, parse_math=False)
        for (row, column), count in zip(counts.nonzero().tolist(), counts[counts > 0].tolist(), strict=True):
            color = "white" if count > cells.max() / 2 else "black"
            axes.text(column, row, count, ha="center", va="center", color=color)
    return figure
