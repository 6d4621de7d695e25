"""Tests that augmentation depends on seed, epoch and sample alone, and what crops, flips and mixup do."""

import numpy as np
import pytest
import torch

from datamodules.image_classifier.augmentation import (
    Augmentation,
    prepare_batch,
    random_crop_and_flip,
    random_rotation_and_scale,
)
from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.image_classifier.dataset import ImageDataset
from datamodules.image_classifier.sources.image_source import ArrayImages, digits, hold_out
from engine.data.errors import BadSampleError
from engine.data.sample_loading import load_batch_skipping_bad
from engine.data.samplers import PADDING_INDEX, MicroBatchRequest


def twenty(random=True, mixup=0.4):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 5), np.uint8)
    return ImageDataset(ArrayImages(pixels, np.arange(20) % 4, "image"), random, mixup)


SHIFTED = Augmentation(2, True)


def images(samples, indices, epoch=0, number=0, augmentation=SHIFTED):
    return prepare_batch(samples[MicroBatchRequest(epoch, np.array(indices), number)], 4, augmentation)


def test_the_digits_are_split_once_and_for_all():
    splits = digits(0.1)
    parts = splits.train, splits.validation, splits.test
    assert [len(part.labels) for part in parts] == [1294, 144, 359]
    assert sorted(np.concatenate([part.numbers for part in parts])) == list(range(1797))
    assert splits.test.name(0) == f"digit {splits.test.numbers[0]}"
    assert splits.train.pixels.dtype == np.uint8
    assert splits.train.pixels.max() == 255
    assert np.bincount(splits.test.labels).min() > 25, "every digit is tested"


def test_a_sample_is_the_same_in_any_company():
    samples, whole = twenty(), Augmentation(2, True, 10, 0.1)
    together = images(samples, [3, 7, 11, PADDING_INDEX], number=5, augmentation=whole)
    alone = images(samples, [11], number=5, augmentation=whole)
    assert torch.equal(together.pixels[2], alone.pixels[0])
    assert torch.equal(together.targets[2], alone.targets[0])
    assert together.labels.tolist() == [3, 3, 3, -1]
    assert together.samples.tolist() == [3, 7, 11, PADDING_INDEX]
    assert together.targets[3].sum() == 0
    assert (together.pixels[3] == -1).all()


def test_augmentation_depends_on_epoch_and_seed(monkeypatch):
    def one(epoch=0):
        return images(twenty(), range(20), epoch).pixels

    first, second = one(), one(epoch=1)
    assert torch.equal(first, one())
    assert not torch.equal(first, second)
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    assert not torch.equal(first, one())


def test_mixup_adds_shares_of_two_images_and_of_their_classes():
    samples = twenty(random=False)
    raw = samples[MicroBatchRequest(0, np.arange(20), 3)]
    batch = prepare_batch(raw, 4, Augmentation())
    share, other = raw.shares.tolist()
    assert 0 < share < 1
    assert share + other == pytest.approx(1)
    pixels = samples.source.pixels / 127.5 - 1
    same = (samples.source.pixels == raw.pixels[:, 1, None].numpy()).all((2, 3, 4))  # [sample, image]
    partners = same.argmax(1)
    assert len(set(partners)) > 5
    expected = share * pixels + other * pixels[partners]
    np.testing.assert_allclose(batch.pixels.numpy(), expected, atol=1e-5)
    for row in range(20):
        target = np.zeros(4)
        target[row % 4] += share
        target[partners[row] % 4] += other
        np.testing.assert_allclose(batch.targets[row].numpy(), target, atol=1e-6)
    assert samples[MicroBatchRequest(0, np.arange(3), 4)].shares[0] != raw.shares[0], "another share for another batch"


class WithCorruptImages(ArrayImages):
    """Images 0 and 3 cannot be read."""

    def read(self, rows):
        if found := sorted({0, 3}.intersection(rows.tolist())):
            raise BadSampleError(f"image {found[0]} is corrupt")
        return super().read(rows)


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_only_corrupt_images_are_skipped(mixup):
    """Nor does a filler read one, nor is a sample lost whose partner is corrupt: it is mixed with itself."""
    whole = twenty(mixup=mixup)
    corrupt = ImageDataset(WithCorruptImages(whole.source.pixels, whole.source.labels, "image"), True, mixup)
    itself = 0
    for epoch in range(3):
        draw = MicroBatchRequest(epoch, np.arange(20))
        actual, skipped = load_batch_skipping_bad(corrupt.__getitem__, draw)
        assert [skip.sample for skip in skipped] == [0, 3]
        assert actual.samples.tolist() == [1, 2, *range(4, 20)]
        expected = whole[draw._replace(indices=actual.samples.numpy())]
        assert torch.equal(actual.pixels[:, 0], expected.pixels[:, 0])
        assert torch.equal(actual.shares, expected.shares)
        if mixup:
            differ = (actual.pixels[:, 1] != expected.pixels[:, 1]).flatten(1).any(1)
            assert torch.equal(actual.pixels[differ, 1], actual.pixels[differ, 0])
            assert torch.equal(actual.labels[differ, 1], actual.labels[differ, 0])
            assert torch.equal(actual.labels[~differ], expected.labels[~differ])
            itself += int(differ.sum())
    assert itself > 0 or not mixup
    nothing, skipped = load_batch_skipping_bad(corrupt.__getitem__, MicroBatchRequest(0, np.array([3, 0])))
    assert [skip.sample for skip in skipped] == [3, 0]
    assert nothing.samples.tolist() == [PADDING_INDEX]
    assert not nothing.pixels.any()
    assert (nothing.labels == -1).all()


def test_evaluation_reads_the_stored_pixels_and_labels():
    samples = twenty(random=False, mixup=0)
    batch = images(samples, range(20))
    np.testing.assert_allclose(batch.pixels.numpy(), samples.source.pixels / 127.5 - 1, atol=1e-6)
    assert torch.equal(batch.targets.argmax(1), batch.labels)
    assert torch.equal(batch.targets.sum(1), torch.ones(20))


def test_batched_crops_and_flips_equal_those_one_by_one():
    pixels = torch.randint(1, 256, (64, 3, 6, 5), dtype=torch.uint8)
    uniform = torch.rand(64, 3)
    actual = random_crop_and_flip(pixels, uniform, 2, True)
    for image, (down, across, mirror), ours in zip(pixels, uniform, actual, strict=True):
        framed = torch.zeros(3, 10, 9, dtype=torch.uint8)
        framed[:, 2:8, 2:7] = image
        top, left = int(down * 5), int(across * 5)
        expected = framed[:, top : top + 6, left : left + 5]
        assert torch.equal(ours, expected.flip(2) if mirror < 0.5 else expected)
    assert torch.equal(random_crop_and_flip(pixels, uniform, 0, False), pixels)


def test_the_largest_random_numbers_are_positions_in_the_frame(monkeypatch):
    """A 32-bit fraction is 1 for one number in 33 million: a position after the last, once in a training on CIFAR."""
    monkeypatch.setattr("engine.determinism.stateless_rng.mix_bits", lambda bits: np.full_like(bits, 2**64 - 1))
    samples = twenty(mixup=0)
    expected = torch.full((3, 5, 5), -1.0)
    expected[:, :3, :3] = torch.from_numpy(samples.source.pixels[7, :, 2:, 2:]) / 127.5 - 1
    torch.testing.assert_close(images(samples, [7]).pixels[0], expected)


def test_held_out_images_are_a_share_and_not_in_the_rest():
    source = twenty().source
    rest, held = hold_out(source, 0.25)
    assert len(held.labels) == 5
    assert sorted([*rest.numbers, *held.numbers]) == list(range(20))
    np.testing.assert_array_equal(held.read(np.array([2]))[0], source.pixels[held.numbers[2]])


def test_of_a_few_images_one_is_held_out():
    source = twenty().source.subset(np.arange(3))
    rest, held = hold_out(source, 0.01)
    assert (len(rest.labels), len(held.labels)) == (2, 1)
    with pytest.raises(ValueError, match="found 1 training images to hold out from"):
        hold_out(held, 0.5)


def test_a_rotation_by_90_degrees_is_numpys():
    pixels = torch.randint(0, 256, (2, 3, 8, 8), dtype=torch.uint8)
    uniform = torch.tensor([[1.0, 0.5], [0.0, 0.5]])
    actual = random_rotation_and_scale(pixels, uniform, 90, 0.0)
    expected = torch.stack([pixels[0].rot90(1, (1, 2)), pixels[1].rot90(-1, (1, 2))]).float()
    torch.testing.assert_close(actual, expected, atol=1e-2, rtol=0)


def test_a_rotation_keeps_the_shape_of_what_an_oblong_image_shows():
    """A quarter turn of a 4 x 8 image: its middle square is turned, and its sides leave the image."""
    pixels = torch.randint(0, 256, (1, 1, 4, 8), dtype=torch.uint8)
    transformed = random_rotation_and_scale(pixels, torch.tensor([[1.0, 0.5]]), 90, 0.0)
    torch.testing.assert_close(transformed[..., 2:6], pixels[..., 2:6].rot90(1, (2, 3)).float(), atol=1e-2, rtol=0)
    assert transformed[..., :2].abs().max() < 1e-2
    assert transformed[..., 6:].abs().max() < 1e-2


def test_an_image_is_enlarged_about_its_centre():
    pixels = torch.zeros(1, 1, 8, 8, dtype=torch.uint8)
    pixels[..., 2:6, 2:6] = 200
    larger = random_rotation_and_scale(pixels, torch.tensor([[0.5, 1.0]]), 0.0, 0.5)
    smaller = random_rotation_and_scale(pixels, torch.tensor([[0.5, 0.0]]), 0.0, 0.5)
    assert [(images > 100).sum().item() for images in (larger, smaller)] == [36, 4]
    for mirrored in (larger.flip(2), larger.flip(3)):
        torch.testing.assert_close(larger, mirrored, atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("image_size", 0, "at least 1"),
        ("validation_share", 0.0, "more than 0 and less than 1"),
        ("validation_share", 1.0, "more than 0 and less than 1"),
        ("crop_padding", -1, "at least 0"),
        ("mixup", -0.1, "at least 0"),
        ("rotation", -1, "at least 0 and at most 180"),
        ("rotation", 181, "at least 0 and at most 180"),
        ("scaling", -0.1, "at least 0 and less than 1"),
        ("scaling", 1, "at least 0 and less than 1"),
    ],
)
def test_a_number_outside_its_range_is_refused_with_its_key_and_range(key, value, expected):
    with pytest.raises(ValueError, match=rf"^data\.init_args\.{key} must be {expected}, got {value}$"):
        LabelledImages(batch_size=8, **{key: value})
