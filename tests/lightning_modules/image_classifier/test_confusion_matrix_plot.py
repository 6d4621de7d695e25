"""Tests the plot of a confusion matrix."""

import io

import torch

from lightning_modules.image_classifier.confusion_matrix_plot import plot_confusion_matrix


def test_a_class_with_dollar_signs_is_no_formula():
    """Matplotlib parses text between two dollar signs, and `_` alone is an error in a formula."""
    figure = plot_confusion_matrix(torch.tensor([[2, 1], [0, 3]]), ["a$_$", "b"])
    figure.savefig(io.BytesIO(), format="png")
    assert [label.get_text() for label in figure.axes[0].get_yticklabels()] == ["a$_$", "b"]
