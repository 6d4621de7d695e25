"""A resumed run trains on exactly the remaining samples, wherever it stopped and on any world size.

Plain Lightning restores no position in the data: on two ranks the resumed epoch begins again, and on another world size
samples are missing or repeated.
"""

import pytest

from tests.support.families.tiny_linear import TINY_FAMILY
from tests.support.faults.step_faults import fault
from tests.support.outputs.sample_log import differences, read, sample_log
from tests.tiers import slow

# 50 samples in batches of 8: 7 steps an epoch, the last with 2 samples, so that of 4 processes 2 have none.
DATA = ["--data.init_args.length", "50", "--data.init_args.batch_size", "8"]
OPTIONS = [*TINY_FAMILY, *DATA, "--last_checkpoint.every_n_steps", "5"]
STREAM = ["--data.init_args.stream", "true"]
STEPS = 24


def steps(number):
    return ["--trainer.max_steps", str(number)]


def workers(number):
    return ["--data.init_args.num_workers", str(number)]


@pytest.fixture
def trains(lockstep, team):
    """Runs a training to its end, on one process here or on several of their own; returns the run."""

    def run(*options, name, processes):
        if processes == 1:
            return lockstep("fit", *options, name=name)
        run = team("fit", *options, name=name, processes=processes).succeeded(120)
        return run

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "before", "after"),
    [
        ([], (1, 0), (1, 2)),
        ([], (1, 2), (2, 2)),
        ([], (2, 2), (1, 0)),
        ([], (2, 0), (4, 2)),
        (STREAM, (1, 2), (2, 0)),
        (STREAM, (2, 0), (4, 2)),
    ],
    ids=lambda part: (
        ("stream" if part else "sized") if isinstance(part, list) else "{}processes-{}workers".format(*part)
    ),
)
def test_an_interrupted_run_trains_on_the_same_samples(trains, kind, before, after):
    through = trains(*OPTIONS, *kind, *steps(STEPS), name="through", processes=1)
    expected = sample_log(through.folder)
    assert len(expected) == STEPS
    assert {epoch for epoch, _ in expected.values()} == {0, 1, 2, 3}
    trains(*OPTIONS, *kind, *workers(before[1]), *steps(11), name="stopped", processes=before[0])
    on = [*OPTIONS, *kind, *workers(after[1]), *steps(STEPS), "--ckpt_path", "last"]
    stopped = trains(*on, name="stopped", processes=after[0])
    assert differences(sample_log(stopped.folder), expected) == []


@pytest.mark.parametrize("kind", [[], slow(STREAM)], ids=["sized", "stream"])
def test_a_killed_run_repeats_only_the_steps_after_its_checkpoint(trains, team, kind):
    through = trains(*OPTIONS, *kind, *steps(STEPS), name="through", processes=1)
    kill = fault("SignalAt", name="SIGKILL", step=13, process=-1)
    killed = team("fit", *OPTIONS, *kind, *workers(2), *steps(STEPS), *kill, name="killed", processes=2)
    assert killed.end() == [-9, -9], killed.output
    assert max(sample_log(killed.folder)) == 12
    on = [*OPTIONS, *kind, *workers(2), *steps(STEPS), "--ckpt_path", "last"]
    resumed = trains(*on, name="killed", processes=1)
    steps_of = {record["step"] for record in read(resumed.folder) if record["begun"] == 10}
    assert steps_of == set(range(10, STEPS)), "steps 10, 11 and 12 were trained again"
    assert differences(sample_log(resumed.folder), sample_log(through.folder)) == []


LOG = {0: (0, [1, 2]), 1: (0, [3, 4]), 2: (1, [1, 3])}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({1: (0, [3])}, "missing samples in epoch 0: [4]"),
        ({1: (0, [3, 4, 4])}, "duplicate samples in epoch 0: [4]"),
        ({0: (0, [1, 3]), 1: (0, [2, 4])}, "misordered samples in step 0: (0, [1, 3]), not (0, [1, 2])"),
    ],
)
def test_the_comparison_distinguishes_the_faults(change, message):
    found = differences({**LOG, **change}, LOG)
    assert found[0] == message
    assert {line.split()[0] for line in found} == {message.split()[0]}
    assert differences(dict(LOG), LOG) == []
