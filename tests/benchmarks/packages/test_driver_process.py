"""Tests the protocol between the benchmark and the driver of a package."""

import json
import subprocess

import psutil
import pytest

from benchmarks.packages.driver_process import Driver, DriverFailed
from tests.benchmarks.packages.stand_in import BREAKS, WORKS, command

pytestmark = pytest.mark.timeout(60)


def test_a_turn_adds_up_what_its_units_did_and_the_package_may_print(tmp_path):
    with Driver(command(tmp_path, "works", WORKS), {"batch_size": 7}, tmp_path) as driver:
        assert driver.versions == {"package": "1.2.3", "torch": "2.0"}
        turns = [driver.turn(4), driver.turn(2)]
        process = psutil.Process(driver._process.pid)
    assert [(turn["rows"], turn["targets"]) for turn in turns] == [(12, 28), (6, 14)]
    assert all(turn["cpu"] > 0 and turn["wall"] > 0 and turn["memory"] > 1 << 20 for turn in turns)
    assert "a package that prints" in (tmp_path / "output.txt").read_text()
    assert not process.is_running()


@pytest.mark.parametrize("work", ["preparing", "a turn"])
def test_a_driver_that_ends_is_quoted(work, tmp_path):
    source = BREAKS if work == "a turn" else "raise ValueError('the package is broken')"
    output = "driver of broken ended with exit code 1(.|\n)*the package is broken"
    broken = command(tmp_path, "broken", source)
    with pytest.raises(DriverFailed, match=output), Driver(broken, {}, tmp_path) as driver:
        driver.turn(1)


def test_an_answer_that_is_not_of_the_protocol_is_shown(tmp_path):
    chatty = command(tmp_path, "chatty", "print('hello', flush=True); input(); input()")
    output = r"chatty sent 'hello\\n', expected JSON"
    with pytest.raises(DriverFailed, match=output), Driver(chatty, {}, tmp_path):
        pass


def test_a_driver_ends_when_its_input_is_closed(tmp_path):
    works = command(tmp_path, "works", WORKS)
    output = "".join(json.dumps(message) + "\n" for message in ({"batch_size": 1}, {"units": 2}))
    ended = subprocess.run(
        [works.python, works.script], input=output, capture_output=True, text=True, env=works.variables, timeout=30
    )
    versions, turn = (json.loads(line) for line in ended.stdout.splitlines())
    assert (ended.returncode, versions["torch"], turn["targets"]) == (0, "2.0", 2)
