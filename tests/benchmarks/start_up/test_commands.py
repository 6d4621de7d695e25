"""Commands are started and measured, a first step is told, and a failure is no figure."""

import pytest
from rich.console import Console

from benchmarks.start_up.commands import BASE, COMMANDS, FIRST_STEP, figures, start, table


def test_the_first_step_is_told_beside_the_import():
    found = figures(1, {name: COMMANDS[name] for name in (BASE, FIRST_STEP)})
    bare, step = found["sides"]
    assert 0 < bare["cpu"][0] < step["cpu"][0] and step["memory"][0] > 2**27
    assert {goal["text"].split(":")[0] for goal in found["goals"]} == {FIRST_STEP}
    console = Console(width=160, record=True)
    console.print(table(found))
    assert "times the CPU time of `import torch`" in console.export_text()


def test_a_command_that_fails_is_no_figure(tmp_path):
    with pytest.raises(RuntimeError, match="ended with 3"):
        start(["-c", "raise SystemExit(3)"], tmp_path)
