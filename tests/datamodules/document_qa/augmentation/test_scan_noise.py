"""Tests scan artifacts in page images."""

from dataclasses import replace

import numpy as np
import pytest

from datamodules.document_qa.augmentation.scan_noise import ScanArtifacts, ScannedDocument, add_artifacts, sample_scan
from datamodules.document_qa.augmentation.settings import AugmentationSettings
from tests.support.families.tiny_documents import TinyDocument

NONE = AugmentationSettings(scan=0, skew=0, jpeg=0, blur=0)


def generator(key: int) -> np.random.Generator:
    return np.random.Generator(np.random.Philox(key=key))


@pytest.mark.parametrize(
    "scan",
    [
        ScanArtifacts(noise=8),
        ScanArtifacts(skew=2),
        ScanArtifacts(quality=50),
        ScanArtifacts(blur=30),
        ScanArtifacts(8, 2, 50, 30),
    ],
)
def test_a_picture_is_altered_a_little_and_the_same_each_time(scan: ScanArtifacts) -> None:
    picture = TinyDocument(3).picture(3)
    seen, again = (np.asarray(add_artifacts(picture, scan, 7), np.int64) for _ in range(2))
    was = np.asarray(picture, np.int64)
    assert np.array_equal(seen, again)
    assert seen.shape == was.shape
    assert 0 < np.abs(seen - was).mean() < 30
    assert np.corrcoef(seen.ravel(), was.ravel())[0, 1] > 0.9
    if scan.noise:
        assert not np.array_equal(seen, np.asarray(add_artifacts(picture, scan, 8)))


def test_pages_and_figures_of_a_document_are_scanned_each_for_itself() -> None:
    document = TinyDocument(3)
    seen = ScannedDocument(document, ScanArtifacts(noise=8), 5)
    assert seen.pages == document.pages
    assert seen.name == document.name
    first, second = (np.asarray(seen.picture(page), np.int64) - np.asarray(document.picture(page)) for page in (1, 2))
    assert not np.array_equal(first, second)
    figure = document.pages[2].chunks[1]
    assert not np.array_equal(np.asarray(seen.figure(figure)), np.asarray(document.figure(figure)))


def test_each_thing_happens_to_its_share_of_the_documents() -> None:
    assert all(sample_scan(NONE, generator(key)) is None for key in range(20))
    some = [sample_scan(replace(NONE, jpeg=0.5), generator(key)) for key in range(200)]
    assert 70 < sum(scan is not None for scan in some) < 130
    assert all(scan is None or scan == ScanArtifacts(quality=scan.quality) for scan in some)
    turned = [sample_scan(replace(NONE, skew=1.5), generator(key)) for key in range(200)]
    angles = [scan.skew for scan in turned if scan is not None]
    assert len(angles) == 200
    assert min(angles) < -1
    assert max(angles) > 1
    assert max(map(abs, angles)) <= 1.5


@pytest.mark.parametrize(
    ("wrong", "messages"),
    [
        ({"skew": 2.1}, "skew must be at least 0 and at most 2.0"),
        ({"blur": 1.1}, "blur must be at least 0"),
        ({"paraphrase": -0.1}, "paraphrase must be at least 0"),
        ({"distractors": -1}, "distractors must be at least"),
    ],
)
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, float], messages: str) -> None:
    with pytest.raises(ValueError, match=f"data.init_args.augmentation.{messages}"):
        AugmentationSettings(**wrong).check()  # type: ignore[arg-type]
