"""Tests the findings about threads that spin, and about cores that other programs use."""

import subprocess
import sys

import pytest

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.machine.cpu import requested_threads
from commands.doctor.machine.openmp import busy_cores, check_contention, check_thread_spin
from commands.launch.openmp_spin import WAITS

BUSY = "print(flush=True)\nwhile True: pass"


@pytest.mark.parametrize(
    ("name", "value", "status"),
    [
        ("OMP_WAIT_POLICY", "ACTIVE", "warn"),
        ("OMP_WAIT_POLICY", "passive", None),
        ("GOMP_SPINCOUNT", "300000", "warn"),
        ("GOMP_SPINCOUNT", "300k", "warn"),
        ("GOMP_SPINCOUNT", "INFINITY", "warn"),
        ("GOMP_SPINCOUNT", "20000", None),
        ("GOMP_SPINCOUNT", "many", None),
        ("KMP_BLOCKTIME", "infinite", "warn"),
        ("KMP_BLOCKTIME", "200ms", "warn"),
        ("KMP_BLOCKTIME", "0", None),
    ],
)
def test_a_long_spin_that_the_user_has_set(name, value, status):
    findings = list(check_thread_spin({name: value}))
    assert [finding.status for finding in findings] == [status] * bool(status)
    assert all(finding.check == "thread spin" for finding in findings)
    assert all(finding.remedy == f"unset {name}" and "30 times" in finding.why for finding in findings)


def test_the_defaults_of_train_py_give_no_finding():
    assert list(check_thread_spin(WAITS)) == list(check_thread_spin({})) == []


@pytest.mark.parametrize(
    ("plan", "busy", "threads", "status", "words"),
    [
        (LaunchPlan(), 0.2, 2, None, ""),
        (LaunchPlan(), 1.0, None, "ok", "other programs use 1.0 of 2 cores; --threads auto chooses by timing"),
        (LaunchPlan(), 1.0, 1, "ok", "other programs use 1.0 of 2 cores"),
        (LaunchPlan(), 1.0, 2, "warn", "2 threads in each of 1 process(es) need these cores too"),
        (LaunchPlan(devices=2), 0.6, 2, "warn", "2 threads in each of 2 process(es)"),
    ],
)
def test_stated_threads_beside_other_programs(plan, busy, threads, status, words):
    findings = list(check_contention(plan, 2.0, busy, threads))
    assert [finding.status for finding in findings] == [status] * bool(status)
    assert all(words in finding.found for finding in findings)


def test_an_option_counts_more_than_a_variable():
    assert requested_threads(LaunchPlan(threads=3), {"OMP_NUM_THREADS": "2"}) == 3
    assert requested_threads(LaunchPlan(), {"OMP_NUM_THREADS": "2,1"}) == 2
    assert requested_threads(LaunchPlan(), {"OMP_NUM_THREADS": "four"}) is requested_threads(LaunchPlan(), {}) is None


def test_another_program_is_noticed():
    with subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE) as program:
        try:
            program.stdout.readline()
            assert busy_cores() > 0.2
        finally:
            program.kill()
