"""Plots a confusion matrix."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch import Tensor

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_MAX_LABELED = 20  # classes with names and counts in the plot

_FONTS = (
    "DejaVu Sans", "Noto Sans CJK SC", "Noto Sans SC", "Source Han Sans SC", "Microsoft YaHei", "PingFang SC",
    "Hiragino Sans GB", "WenQuanYi Micro Hei", "WenQuanYi Zen Hei", "SimHei", "Arial Unicode MS",
)  # fmt: skip
"""Fonts for names of classes, in this order. Matplotlib comes with the first, which has no Chinese."""


def plot_confusion_matrix(counts: Tensor, classes: Sequence[str]) -> "Figure":
    """Plot a confusion matrix, with a row for each true class and a column for each predicted class.

    Args:
        counts: [K, K], number of images of class i with prediction j.
        classes: names of the K classes. A name that no installed font can draw is replaced by the class's index.
    """
    from matplotlib.figure import Figure

    classes, fonts = _drawable_names(classes)

    figure = Figure(figsize=(7, 6), layout="constrained")
    axes, cells = figure.subplots(), counts.cpu().numpy()
    figure.colorbar(axes.imshow(cells, cmap="Blues"))
    axes.set(xlabel="predicted class", ylabel="true class")
    # More names and counts would overlap.
    if len(classes) <= _MAX_LABELED:
        # A class named `$a_$` is no formula, which matplotlib would parse.
        axes.set_xticks(range(len(classes)), classes, rotation=90, parse_math=False, fontfamily=fonts)
        axes.set_yticks(range(len(classes)), classes, parse_math=False, fontfamily=fonts)
        for (row, column), count in zip(counts.nonzero().tolist(), counts[counts > 0].tolist(), strict=True):
            color = "white" if count > cells.max() / 2 else "black"
            axes.text(column, row, count, ha="center", va="center", color=color)
    return figure


def _drawable_names(classes: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the names of classes as they are drawn, and the installed fonts."""
    from matplotlib import font_manager

    installed = set(font_manager.get_font_names())
    fonts = [font for font in _FONTS if font in installed]
    characters = {
        chr(code) for font in fonts for code in font_manager.get_font(font_manager.findfont(font)).get_charmap()
    }
    names = [name if characters.issuperset(name) else str(index) for index, name in enumerate(classes)]
    return names, fonts
