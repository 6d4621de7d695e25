"""The tests' own launcher starts what torchrun starts."""

from tests.conftest import TINY
from tests.distributed.faults import fault


def test_a_team_trains_and_ends(team):
    run = team("fit", *TINY, "--trainer.max_steps", "5", name="a", processes=2)
    assert run.end() == [0, 0], run.output
    assert sorted(run.series("train/loss")) == [1, 2, 3, 4, 5]
    assert "= 2 processes x 8 samples" in run.output


def test_faults_reach_one_process(team):
    run = team("fit", *TINY, *fault("SignalAt", name="SIGKILL", step=3, process=1), name="a", processes=2)
    codes = run.end()
    assert codes[1] == -9 and codes[0] != 0, run.output
