"""A confusion matrix as a picture."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MOST_NAMED = 20  # classes of which a picture has names and counts


def confusion_picture(counts: Tensor, classes: Sequence[str]) -> "Figure":
    """
    Args:
        counts: [K, K], how often an image of class i was taken for class j.
        classes: K names.

    Raises:
        ValueError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as error:
        raise ValueError("confusion matrices are drawn by matplotlib: pip install -e '.[images]'") from error
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
