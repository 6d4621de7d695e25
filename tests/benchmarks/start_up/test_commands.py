"""Starts and measures commands: a first step is reported, and a failed command has no result."""

import os
import subprocess

import pytest
from rich.console import Console

from benchmarks.start_up.commands import BASE, COMMANDS, FIRST_STEP, measure, start, table


@pytest.mark.slow
def test_the_first_step_is_measured_beside_the_import():
    measured = measure(1, {name: COMMANDS[name] for name in (BASE, FIRST_STEP)}, warm_up=0)
    bare, step = measured["sides"]
    assert 0 < bare["cpu"][0] < step["cpu"][0]
    assert step["memory"][0] > 2**27
    assert {goal["text"].split(":")[0] for goal in measured["goals"]} == {FIRST_STEP}
    console = Console(width=160, record=True)
    console.print(table(measured))
    assert "times the CPU time of `import torch`" in console.export_text()


@pytest.mark.slow
def test_a_command_that_takes_too_long_leaves_no_process_behind(tmp_path):
    """Two processes in sessions of their own, as torchrun starts them."""
    os.mkfifo(tmp_path / "alive")
    alive = os.open(tmp_path / "alive", os.O_RDONLY | os.O_NONBLOCK)
    child = "import time; file = open('alive', 'w'); print('begun', file=file, flush=True); time.sleep(600)"
    launch = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}], start_new_session=True)"
    with pytest.raises(subprocess.TimeoutExpired):
        start(["-c", launch], tmp_path, timeout=10)
    os.set_blocking(alive, True)
    assert os.read(alive, 100) == b"begun\n"
    assert os.read(alive, 100) == b""  # no writer is left
    os.close(alive)


def test_a_command_that_fails_is_not_measured(tmp_path):
    with pytest.raises(RuntimeError, match="ended with 3"):
        start(["-c", "raise SystemExit(3)"], tmp_path)
