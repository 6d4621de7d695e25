"""An error in a data loader names its position and samples, and ends all ranks.

Plain Lightning reports that a worker exited, or the exception, and no sample.
"""

import re

import numpy as np
import pytest

from engine.data.epoch_order import global_batches
from engine.determinism.stateless_rng import hash_permutation
from tests.support.families.tiny_linear import TINY_FAMILY
from tests.tiers import slow

DATA = ["--data.init_args.length", "64", "--data.init_args.batch_size", "8"]
OPTIONS = [*TINY_FAMILY, *DATA, "--trainer.max_steps", "9"]
SAMPLE = 21


def data(**settings):
    return [part for key, value in settings.items() for part in (f"--data.init_args.{key}", str(value).lower())]


@pytest.mark.parametrize("stream", [False, slow(True)], ids=["sized", "stream"])
@pytest.mark.parametrize(
    ("fault", "workers", "messages"),
    [
        ("raise", 0, "injected at sample 21"),
        slow("raise", 2, "injected at sample 21"),
        slow("exit", 2, "exited unexpectedly with exit code 3"),
        # Torch names the signal, unless it finds the worker dead before the signal of its death has come.
        ("kill", 2, "killed by signal: Killed|exited unexpectedly"),
    ],
)
def test_a_sample_that_fails_to_load_is_named(team, fault, workers, messages, stream):
    settings = data(stream=stream, fault=fault, fault_sample=SAMPLE, num_workers=workers)
    run = team("fit", *OPTIONS, *settings, name="a", processes=2)
    codes = run.end_cleanly()
    assert 0 not in codes, (codes, run.output)
    order = hash_permutation(64, 1, 0) if stream else np.concatenate(global_batches(64, 8, seed=1, epoch=0))
    position = int(np.flatnonzero(order == SAMPLE)[0])
    names = rf"positions [^)]*\b{position}\b" if stream else rf"samples [^)]*\b{SAMPLE}\b"
    loader = run.logs[position % 2]  # shares are strided
    assert re.search(rf"loading.* global batch {position // 8} of epoch 0 \({names}", loader), run.output
    assert re.search(messages, loader), run.output
