"""Tests the Triton kernels of the time-interval attention in the interpreter, and compiles them for a GPU."""

import importlib.util
import json
import os
import subprocess
import sys

import pytest

from tests.lightning_modules.recommender.networks.attention.kernels import __name__ as package

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="Triton has no wheel for this system"
)

_SMALLEST_SHARED_MEMORY = 99 << 10  # bytes that a block may use, compute capability 8.6 and 8.9


def run(name, **variables):
    environment = {**os.environ, "TRITON_DEFAULT_FP_FUSION": "1", **variables}
    command = [sys.executable, "-m", f"{package}.programs", name]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=150)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_interpreted_kernels_equal_the_plain_form():
    """Values, gradients and dropout's masks, with sizes that fill no tile and several tiles."""
    differences = run("compare", TRITON_INTERPRET="1")
    assert len(differences) == 3
    assert {case: own for case, own in differences.items() if not max(own.values()) < 1e-5} == {}


@pytest.mark.slow
def test_kernels_compile_for_gpus_of_little_shared_memory(tmp_path):
    needed = run("translate", TRITON_CACHE_DIR=str(tmp_path))
    assert list(needed) == ["mix_values", "differentiate_queries", "differentiate_keys"]
    assert all(0 < of_kernel <= _SMALLEST_SHARED_MEMORY for of_kernel in needed.values())
