"""Checks the number of threads that is known before a run computes, and how threads wait for each other."""

import json
import os
import subprocess
import sys

import pytest
import torch

from callbacks.performance.cpu_threads import KnownThreads
from commands.cli.threads_option import as_text, from_text, known_threads, set_threads
from commands.launch.openmp_spin import WAITS, limit_thread_spin
from tests.conftest import REPOSITORY

ASK_AT_TORCH = """
import os, runpy, sys

class AtTorch:
    def find_spec(self, name, *_):
        if name in ("torch", "numpy", "lightning"):
            sys.exit(f"{name} {os.environ.get('GOMP_SPINCOUNT')} {os.environ.get('KMP_BLOCKTIME')}")

sys.meta_path.insert(0, AtTorch())
sys.argv = ["train.py", "fit", "--config", "x.yaml"]
runpy.run_path("train.py", run_name="__main__")
"""


@pytest.mark.parametrize(
    ("user", "found"),
    [
        ({}, f"{WAITS['GOMP_SPINCOUNT']} {WAITS['KMP_BLOCKTIME']}"),
        ({"GOMP_SPINCOUNT": "5"}, "5 None"),
        ({"KMP_BLOCKTIME": "0"}, "None 0"),
        ({"OMP_WAIT_POLICY": "PASSIVE"}, "None None"),
    ],
)
def test_the_spin_is_bounded_before_torch_is_imported_unless_the_user_has_set_it(user, found):
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(REPOSITORY), **user}
    command = [sys.executable, "-c", ASK_AT_TORCH]
    run = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, timeout=60)
    name, _, values = run.stderr.strip().partition(" ")
    assert name in ("torch", "numpy", "lightning"), run.stderr
    assert values == found, run.stderr


def test_processes_that_are_started_inherit_the_bounds():
    environ = {}
    limit_thread_spin(environ)
    limit_thread_spin(environ)  # as in a process that another process has started
    assert environ == WAITS


@pytest.mark.parametrize(
    ("option", "environ", "set_by"),
    [
        ("auto", {}, ""),
        ("auto", {"OMP_NUM_THREADS": ""}, ""),
        ("auto", {"OMP_NUM_THREADS": "2"}, "OMP_NUM_THREADS"),
        ("auto", {"MKL_NUM_THREADS": "2"}, "MKL_NUM_THREADS"),
        (2, {"OMP_NUM_THREADS": "1"}, "--threads"),
    ],
)
def test_the_source_of_the_thread_count_is_known(option, environ, set_by):
    threads = known_threads(option, environ, None, None)
    assert threads == KnownThreads(set_by) == from_text(as_text(threads))


def test_an_option_is_for_processes_that_are_started_too():
    environ, before = {"OMP_NUM_THREADS": "1"}, torch.get_num_threads()
    try:
        set_threads(before + 1, environ)
        assert environ == {"OMP_NUM_THREADS": str(before + 1)}
        assert torch.get_num_threads() == before + 1
    finally:
        torch.set_num_threads(before)


def test_the_checkpoint_counts_and_where_it_has_no_record_the_folder_of_the_run(tmp_path):
    facts = {"device": "cpu", "threads": 2, "processes": 4}
    (tmp_path / "environment.json").write_text(json.dumps(facts))
    with_record, without, corrupt = (str(tmp_path / f"{name}.ckpt") for name in ("with", "without", "corrupt"))
    torch.save({"threads": {"number": 8, "processes": 1}}, with_record)
    torch.save({"global_step": 1}, without)
    (tmp_path / "corrupt.ckpt").write_text("corrupt")
    for checkpoint, begun, recorded in (
        (with_record, tmp_path, (8, 1)),
        (without, tmp_path, (2, 4)),
        (without, None, (None, None)),
        (None, tmp_path, (2, 4)),  # stopped before its first checkpoint
        (corrupt, None, (None, None)),  # reported when it is loaded
        (None, tmp_path / "new", (None, None)),
    ):
        threads = known_threads("auto", {}, checkpoint, begun)
        assert threads[1:] == recorded
        assert from_text(as_text(threads)) == threads
    for text in ("{", "[]", json.dumps({**facts, "device": "cuda:0"}), '{"device": "cpu", "processes": 1}'):
        (tmp_path / "environment.json").write_text(text)
        assert known_threads("auto", {}, None, tmp_path) == KnownThreads()


def test_far_more_threads_than_cores_are_refused():
    """The process could start none of its other threads."""
    environ: dict[str, str] = {}
    with pytest.raises(ValueError, match="threads is 1000000, expected at most"):
        set_threads(1_000_000, environ)
    assert environ == {}
