"""Tests the list of machine checks."""

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.machine_checks import machine_checks


def test_every_check_has_a_name_of_its_own():
    """A check that raises or gives no answer is known by its name alone."""
    names = [check.name for check in machine_checks(LaunchPlan(), {})]
    assert len(names) == len(set(names)), names
