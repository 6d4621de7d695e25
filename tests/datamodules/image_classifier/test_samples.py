"""What a sample is made of depends on seed, epoch and sample alone; crops, flips and mixup are what they say."""

import numpy as np
import pytest
import torch

from datamodules.image_classifier.augmentation import cropped, prepared
from datamodules.image_classifier.samples import ImageSamples
from datamodules.image_classifier.sources import ArrayImages, digits, hold_out
from engine.bad_sample import BadSample
from engine.bad_samples import without_bad
from engine.sampling import FILLER, Draw


def twenty(random=True, mixup=0.4):
    pixels = np.random.default_rng(0).integers(0, 256, (20, 3, 5, 5), np.uint8)
    return ImageSamples(ArrayImages(pixels, np.arange(20) % 4, "image"), random, mixup)


def images(samples, indices, epoch=0, number=0):
    return prepared(samples[Draw(epoch, np.array(indices), number)], 4, 2, True)


def test_the_digits_are_split_once_and_for_all():
    splits = digits(0.1)
    parts = splits.train, splits.validation, splits.test
    assert [len(part.labels) for part in parts] == [1294, 144, 359]
    assert sorted(np.concatenate([part.numbers for part in parts])) == list(range(1797))
    assert splits.test.name(0) == f"digit {splits.test.numbers[0]}"
    assert splits.train.pixels.dtype == np.uint8 and splits.train.pixels.max() == 255
    assert np.bincount(splits.test.labels).min() > 25, "every digit is tested"


def test_a_sample_is_the_same_in_any_company():
    samples = twenty()
    together, alone = images(samples, [3, 7, 11, FILLER], number=5), images(samples, [11], number=5)
    assert torch.equal(together.pixels[2], alone.pixels[0]) and torch.equal(together.targets[2], alone.targets[0])
    assert together.labels.tolist() == [3, 3, 3, -1] and together.samples.tolist() == [3, 7, 11, FILLER]
    assert together.targets[3].sum() == 0 and (together.pixels[3] == -1).all()


def test_it_is_another_in_another_epoch_and_under_another_seed(monkeypatch):
    def one(epoch=0):
        return images(twenty(), range(20), epoch).pixels

    first, second = one(), one(epoch=1)
    assert torch.equal(first, one()) and not torch.equal(first, second)
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")
    assert not torch.equal(first, one())


def test_mixup_adds_shares_of_two_images_and_of_their_classes():
    samples = twenty(random=False)
    raw = samples[Draw(0, np.arange(20), 3)]
    batch = prepared(raw, 4, 0, False)
    share, other = raw.shares.tolist()
    assert 0 < share < 1 and share + other == pytest.approx(1)
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
    assert samples[Draw(0, np.arange(3), 4)].shares[0] != raw.shares[0], "another share for another batch"


class Damaged(ArrayImages):
    """Images 0 and 3 cannot be read."""

    def read(self, rows):
        if found := sorted({0, 3}.intersection(rows.tolist())):
            raise BadSample(f"image {found[0]} is damaged")
        return super().read(rows)


@pytest.mark.parametrize("mixup", [0.0, 0.4])
def test_damaged_images_are_left_out_and_no_others(mixup):
    """Nor does a filler read one, nor is a sample lost whose partner is damaged: it is mixed with itself."""
    whole = twenty(mixup=mixup)
    damaged = ImageSamples(Damaged(whole.source.pixels, whole.source.labels, "image"), True, mixup)
    itself = 0
    for epoch in range(3):
        draw = Draw(epoch, np.arange(20))
        found, left_out = without_bad(damaged.__getitem__, draw)
        assert [one.sample for one in left_out] == [0, 3]
        assert found.samples.tolist() == [1, 2, *range(4, 20)]
        expected = whole[draw._replace(indices=found.samples.numpy())]
        assert torch.equal(found.pixels[:, 0], expected.pixels[:, 0]) and torch.equal(found.shares, expected.shares)
        if mixup:
            differ = (found.pixels[:, 1] != expected.pixels[:, 1]).flatten(1).any(1)
            assert torch.equal(found.pixels[differ, 1], found.pixels[differ, 0])
            assert torch.equal(found.labels[differ, 1], found.labels[differ, 0])
            assert torch.equal(found.labels[~differ], expected.labels[~differ])
            itself += int(differ.sum())
    assert itself > 0 or not mixup
    nothing, left_out = without_bad(damaged.__getitem__, Draw(0, np.array([3, 0])))
    assert [one.sample for one in left_out] == [3, 0] and nothing.samples.tolist() == [FILLER]
    assert not nothing.pixels.any() and (nothing.labels == -1).all()


def test_evaluation_changes_nothing():
    samples = twenty(random=False, mixup=0)
    batch = images(samples, range(20))
    np.testing.assert_allclose(batch.pixels.numpy(), samples.source.pixels / 127.5 - 1, atol=1e-6)
    assert torch.equal(batch.targets.argmax(1), batch.labels) and torch.equal(batch.targets.sum(1), torch.ones(20))


def test_crops_and_flips_one_by_one():
    pixels = torch.randint(1, 256, (64, 3, 6, 5), dtype=torch.uint8)
    uniform = torch.rand(64, 3)
    found = cropped(pixels, uniform, 2, True)
    for image, (down, across, mirror), ours in zip(pixels, uniform, found, strict=True):
        framed = torch.zeros(3, 10, 9, dtype=torch.uint8)
        framed[:, 2:8, 2:7] = image
        top, left = int(down * 5), int(across * 5)
        expected = framed[:, top : top + 6, left : left + 5]
        assert torch.equal(ours, expected.flip(2) if mirror < 0.5 else expected)
    assert torch.equal(cropped(pixels, uniform, 0, False), pixels)


def test_the_largest_random_numbers_are_places_in_the_frame(monkeypatch):
    """As 32-bit fractions one in 33 million would be 1: a place behind the last, about once in a training on CIFAR."""
    monkeypatch.setattr("engine.randomness._mix", lambda bits: np.full_like(bits, 2**64 - 1))
    samples = twenty(mixup=0)
    expected = torch.full((3, 5, 5), -1.0)
    expected[:, :3, :3] = torch.from_numpy(samples.source.pixels[7, :, 2:, 2:]) / 127.5 - 1
    torch.testing.assert_close(images(samples, [7]).pixels[0], expected)


def test_what_is_held_out_is_a_share_and_not_in_the_rest():
    source = twenty().source
    rest, held = hold_out(source, 0.25)
    assert len(held.labels) == 5 and sorted([*rest.numbers, *held.numbers]) == list(range(20))
    np.testing.assert_array_equal(held.read(np.array([2]))[0], source.pixels[held.numbers[2]])


def test_of_a_few_images_one_is_held_out():
    source = twenty().source.part(np.arange(3))
    rest, held = hold_out(source, 0.01)
    assert (len(rest.labels), len(held.labels)) == (2, 1)
    with pytest.raises(ValueError, match="found 1 training images to hold some of out"):
        hold_out(held, 0.5)
