"""Tests that class probabilities are the mean over shifted copies of an image."""

import pytest
import torch
from torch import nn

from datamodules.image_classifier.sources.image_source import digits
from lightning_modules.image_classifier.networks.resnet import ResNet18
from lightning_modules.image_classifier.shift_averaging import average_over_shifts
from tests.support.families.tiny_digits import DIGITS


@pytest.fixture
def network():
    torch.manual_seed(5)
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 6 * 5, 3))


def shifted(image, down, across):
    """Move an image [C, H, W] pixel by pixel; what enters it is black."""
    moved = torch.full_like(image, -1.0)
    _, height, width = image.shape
    for row in range(height):
        for column in range(width):
            if 0 <= row + down < height and 0 <= column + across < width:
                moved[:, row + down, column + across] = image[:, row, column]
    return moved


@pytest.mark.parametrize("shift", [1, 2])
def test_averaging_returns_the_mean_of_probabilities_over_all_shifts(network, shift):
    images = torch.rand(4, 2, 6, 5) * 2 - 1
    averaged = average_over_shifts(network, images, shift)
    offsets = range(-shift, shift + 1)
    for image, logits in zip(images, averaged, strict=True):
        copies = [shifted(image, down, across) for down in offsets for across in offsets]
        probabilities = torch.stack([network(copy[None])[0].softmax(0) for copy in copies]).mean(0)
        torch.testing.assert_close(logits.exp(), probabilities)
        torch.testing.assert_close(logits.softmax(0), probabilities)
    assert torch.equal(average_over_shifts(network, images, 0), network(images))


def test_the_validation_loss_is_that_of_the_mean_over_shifts(lockstep):
    """`val/loss` is the loss of the mean, here by a separate network that reads a single shift at a time."""
    constant = ["--trainer.limit_train_batches", "20", "--model.init_args.schedule", "constant"]
    run = lockstep("fit", *DIGITS, *constant, "--model.init_args.evaluation_shift", "1", name="a")
    weights = torch.load(run.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
    network = ResNet18(1, 10, 8).eval()
    average = {name.removeprefix("average."): value for name, value in weights.items() if name.startswith("average.")}
    network.load_state_dict({name.replace("/", "."): value for name, value in average.items()})
    held = digits(0.1).validation
    framed = torch.nn.functional.pad(torch.from_numpy(held.pixels).float(), [1] * 4) / 127.5 - 1
    with torch.no_grad():
        crops = [framed[:, :, down : down + 8, across : across + 8] for down in range(3) for across in range(3)]
        probabilities = torch.stack([network(crop).softmax(1) for crop in crops]).mean(0)
    labels = torch.from_numpy(held.labels)
    losses = -probabilities[torch.arange(len(labels)), labels].log()
    assert run.series("val/loss")[20] == pytest.approx(float(losses.mean()), rel=1e-4)
    assert run.series("val/accuracy")[20] == pytest.approx(float((probabilities.argmax(1) == labels).float().mean()))


@pytest.mark.parametrize("shift", ["-1", "9"])
def test_a_shift_out_of_range_is_refused(lockstep, shift):
    with pytest.raises(ValueError, match=f"evaluation_shift must be at least 0 and at most 8, got {shift}"):
        lockstep("fit", *DIGITS, "--model.init_args.evaluation_shift", shift, name="a")
