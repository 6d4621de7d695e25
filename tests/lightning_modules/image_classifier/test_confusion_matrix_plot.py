"""Tests the plot of a confusion matrix."""

import io
import warnings

import pytest
import torch
from matplotlib.figure import Figure

from lightning_modules.image_classifier import confusion_matrix_plot
from lightning_modules.image_classifier.confusion_matrix_plot import plot_confusion_matrix


def test_a_class_with_dollar_signs_is_no_formula():
    """Matplotlib parses text between two dollar signs, and `_` alone is an error in a formula."""
    figure = plot_confusion_matrix(torch.tensor([[2, 1], [0, 3]]), ["a$_$", "b"])
    assert labels(figure) == ["a$_$", "b"]


@pytest.mark.parametrize(("fonts", "drawn"), [(("DejaVu Sans",), "0"), (("DejaVu Sans", "STIXGeneral"), "\u1d81")])
def test_a_name_without_a_font_is_replaced_by_its_index(monkeypatch, fonts, drawn):
    monkeypatch.setattr(confusion_matrix_plot, "_FONTS", (*fonts, "a font that is not installed"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figure = plot_confusion_matrix(torch.tensor([[2, 1], [0, 3]]), ["\u1d81", "b"])
        assert labels(figure) == [drawn, "b"]


def labels(figure: Figure) -> list[str]:
    """Draw a figure, and return the names beside its rows."""
    figure.savefig(io.BytesIO(), format="png")
    return [label.get_text() for label in figure.axes[0].get_yticklabels()]
