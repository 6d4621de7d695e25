"""Tests out-of-memory errors: the advice, which helps, and the micro-batch that the program finds by itself."""

from tests.conftest import TINY
from tests.support.device.limited_memory import limited_memory
from tests.support.device.options import DETERMINISTIC, on, quiet

FITS = 4


def options(device):
    return [*TINY, *on(device), *quiet(3), "--trainer.limit_val_batches", "0", *DETERMINISTIC]


def test_out_of_memory_ends_with_advice(device, workplace):
    run = workplace.run("fit", *options(device), *limited_memory(FITS), name="full", codes=[1])
    assert "out of memory in the forward pass" in run.output
    assert "first change: --data.init_args.micro_batch_size 8 (keeps the global batch of 16" in run.output
    assert "current micro-batch: " in run.output
    assert "targets [8, " in run.output
    assert "Traceback" not in run.output
    if device == "cuda":
        assert "GiB reserved, of" in run.output
        assert "or let the program find the micro-batch size: --trainer.auto_micro_batch true" in run.output


def test_the_micro_batch_that_fits_is_found(device, workplace):
    """The training is to the bit that with the size set by hand, which fits as well."""
    found = workplace.run(
        "fit", *options(device), *limited_memory(FITS), "--trainer.auto_micro_batch", "true", name="found"
    )
    assert "8 samples do not fit" in found.output
    assert f"{FITS} samples fit" in found.output
    assert "global batch 16 = 1 rank x 4 samples x 4 accumulation steps" in found.output
    by_hand = ["--data.init_args.micro_batch_size", str(FITS)]
    given = workplace.run("fit", *options(device), *limited_memory(FITS), *by_hand, name="given")
    assert found.series("train/loss") == given.series("train/loss")
    assert sorted(found.series("train/loss")) == [1, 2, 3]
