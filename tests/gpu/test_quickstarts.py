"""The quickstart of each family trains and validates with overlays/gpu.yaml, in 16-mixed and in bf16-mixed."""

import math

import pytest

from tests.conftest import REPOSITORY
from tests.support.device.optional_packages import needs
from tests.support.device.options import on, quiet

QUICKSTARTS = {
    "recommender": "recommender/quickstart",
    "image_classifier": "image_classifier/digits",
    "vision_language": "vision_language/quickstart_pretrain",
    "temporal": "temporal/quickstart",
    "document_qa": "document_qa/quickstart",
}
EXTRAS = {
    "image_classifier": ["images"],
    "vision_language": ["language"],
    "temporal": ["language"],
    "document_qa": ["documents"],
}

TOLERANCE = {"16-mixed": 0.02, "bf16-mixed": 0.05}
"""Largest relative difference of the first loss from that of the same weights and samples in float32 on the CPU."""

STEPS = {"cpu": 2, "cuda": 30}
SMALL = [
    "--data.init_args.batch_size",
    "4",
    "--data.init_args.evaluation_batch_size",
    "4",
    "--trainer.limit_val_batches",
    "1",
]


def config(family: str) -> list[str]:
    return ["--config", str(REPOSITORY / f"configs/{QUICKSTARTS[family]}.yaml"), *SMALL]


@pytest.fixture(scope="module")
def first_loss(shared_workplace):
    """Return the first loss of a family in float32 on the CPU."""
    known = {}

    def of(family):
        if family not in known:
            options = [*config(family), *on("cpu"), *quiet(1), "--trainer.limit_val_batches", "0"]
            known[family] = shared_workplace.run("fit", *options, name=f"{family}-exact").series("train/loss")[1]
        return known[family]

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "precision"),
    [
        pytest.param(family, precision, marks=needs(*EXTRAS.get(family, [])))
        for precision in TOLERANCE
        for family in QUICKSTARTS
    ],
)
def test_each_quickstart_trains_and_validates(device, workplace, first_loss, record_property, family, precision):
    exact = first_loss(family)
    run = workplace.run("fit", *config(family), *on(device, precision), *quiet(STEPS[device]), name="quickstart")
    losses = run.series("train/loss")
    assert sorted(losses) == list(range(1, STEPS[device] + 1))
    assert all(map(math.isfinite, losses.values()))
    torch_device = "cuda:0" if device == "cuda" else "cpu"
    assert f"device {torch_device}, precision {precision}" in run.output
    assert "this model" in run.output, "the table of the validation"
    away = abs(losses[1] - exact) / abs(exact)
    record_property("first_loss", losses[1])
    record_property("away_from_float32", away)
    record_property("last_loss", losses[STEPS[device]])
    assert away <= TOLERANCE[precision]
    assert (run.folder / "checkpoints/last.ckpt").exists()
