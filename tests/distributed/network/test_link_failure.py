"""The link between two hosts is cut: two network namespaces with a torchrun in each."""

import time

import pytest

from tests.conftest import TINY, Run
from tests.support.ranks.two_machines import torchrun
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.distributed, pytest.mark.timeout(600)]

LONG = [*TINY, "--model.init_args.dropout", "0", "--trainer.max_epochs", "-1", "--trainer.val_check_interval", "1.0"]
LONG += ["--trainer.check_val_every_n_epoch", "100000", "--last_checkpoint.every_n_steps", "100000"]
LIMIT = 35
"""Seconds that a link may be cut: 20, and as long again until TCP, which tries ever more rarely, tries once more."""


@pytest.mark.slow
def test_a_short_link_failure_is_tolerated_and_a_long_one_ends_all(machines, forge, tmp_path, lockstep):
    """Plain Lightning also continues after 20 s; a permanent cut is noticed after 30 minutes."""
    run = Run(tmp_path / "runs" / "cut")
    nodes = torchrun(forge, machines, tmp_path, *LONG, "--run_name", "cut", "--watchdog.timeout", str(LIMIT))

    def codes():
        forge.listen()
        return [forge.codes.get(node) for node in nodes]

    def log_text():
        return "".join(f"--- node {node}\n{(tmp_path / f'node-{node}.log').read_text()}" for node in (0, 1))

    def last_step():
        assert codes() == [None, None], log_text()
        try:
            return max(run.series("train/loss"), default=0)
        except (FileNotFoundError, ValueError):  # not begun, or the last line is being written
            return 0

    wait_until(lambda: last_step() >= 5, 150, log_text)
    machines.link("down")
    time.sleep(20)
    before = max(run.series("train/loss"))
    machines.link("up")
    wait_until(lambda: last_step() >= before + 20, 60, log_text)
    machines.link("down")
    wait_until(lambda: None not in codes(), LIMIT + 60, log_text)
    assert 0 not in codes(), log_text()
    first, second = ((tmp_path / f"node-{node}.log").read_text() for node in (0, 1))
    assert "rank 1 has sent no heartbeat for" in first, first
    assert "no answer for" in second, second
    assert "10.233.77.1:29511" in second, second

    losses = run.series("train/loss")
    through = lockstep("fit", *LONG, "--trainer.max_steps", str(before + 20), name="through").series("train/loss")
    assert sorted(through) == list(range(1, before + 21))
    assert all(abs(losses[step] - through[step]) < 1e-4 for step in through), "the cut has changed the training"
