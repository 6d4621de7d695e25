"""A recommender's compiled step, on a GPU a CUDA graph: losses of the plain step, one graph, and resume to the bit.

On a CPU the graph runs as torch has traced it.
"""

import pytest

from tests.conftest import TINY
from tests.support.device.graph_counts import count_graphs
from tests.support.device.options import DETERMINISTIC, on, quiet

OPTIONS = [
    *TINY,
    "--model.init_args.attention",
    "time_interval",
    "--data.init_args.micro_batch_size",
    "8",
    *DETERMINISTIC,
    "--trainer.limit_val_batches",
    "0",
    "--threads",
    "1",
]
STEPS = 15  # an epoch has 13, and the micro-batches of its last step are incomplete
TOLERANCE = {"32-true": 1e-4, "16-mixed": 3e-2}
"""Largest difference of a loss, relative: other kernels round elsewhere, and steps add up."""


def options(device, precision, steps=STEPS, dropout=0.0):
    return [*OPTIONS, *on(device, precision), *quiet(steps), "--model.init_args.dropout", str(dropout)]


def compiled(device):
    return ["--model.init_args.compile_step", "true", *count_graphs(device)]


@pytest.mark.slow
@pytest.mark.parametrize("precision", TOLERANCE)
def test_losses_are_those_of_the_plain_step(device, workplace, record_property, precision):
    plain = workplace.run("fit", *options(device, precision), name="plain").series("train/loss")
    run = workplace.run("fit", *options(device, precision), *compiled(device), name="compiled", limit=170)
    ours = run.series("train/loss")
    worst = max(abs(ours[step] / plain[step] - 1) for step in plain)
    record_property("relative_error", worst)
    assert ours.keys() == plain.keys()
    assert len(plain) == STEPS
    assert worst <= TOLERANCE[precision]
    assert "compiled graphs: 1\n" in run.output, "one for all micro-batches"


@pytest.mark.slow
def test_a_run_with_dropout_resumes_to_the_bit(device, workplace):
    through = workplace.run("fit", *options(device, "16-mixed", dropout=0.2), *compiled(device), name="through")
    workplace.run("fit", *options(device, "16-mixed", 6, 0.2), *compiled(device), name="stopped")
    again = [*options(device, "16-mixed", dropout=0.2), *compiled(device), "--ckpt_path", "last"]
    resumed = workplace.run("fit", *again, name="stopped")
    assert resumed.starts == [0, 6], resumed.output
    assert resumed.series("train/loss") == through.series("train/loss")
    assert len(set(through.series("train/loss").values())) == STEPS
