"""A /dev/shm that is too small is told before a worker is killed in it; for real where a small one can be mounted."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from engine.shared_memory import free_bytes, in_units, put_there, too_little
from tests.conftest import REPOSITORY


def test_tensors_are_put_there():
    batch = ({"a": torch.ones(3, 4), "b": ["text", 7]}, torch.arange(2), torch.zeros(0), torch.ones(2, 2).T)
    assert put_there(batch) == 3 * 4 * 4 + 2 * 8 + 2 * 2 * 4
    assert batch[0]["a"].is_shared() and batch[1].is_shared() and batch[0]["a"].sum() == 12
    assert put_there(batch) == 0  # they are there


def test_where_there_is_no_such_folder(tmp_path):
    assert 0 < free_bytes(tmp_path) and free_bytes(tmp_path / "nowhere") is None
    assert put_there(torch.ones(4), folder=tmp_path / "nowhere") == 16  # torch finds a place of its own


def test_what_may_be_under_way_at_once():
    mib = 1 << 20
    assert too_little(mib, workers=4, processes=8, free=72 * mib) is None  # 8 x (2 x 4 + 1)
    said = too_little(mib, workers=4, processes=8, free=64 * mib)
    assert "64.0 MiB free, but up to 72.0 MiB may be needed" in said and "medium: Memory" in said
    assert (in_units(512), in_units(1536), in_units(5 << 30)) == ("512 bytes", "1.5 KiB", "5.0 GiB")


LOAD = """
    import logging, sys
    import numpy as np, torch
    from engine.loading import LoadingError, MeasuredLoader, Pending
    from engine.reading import Reader
    from engine.sampling import EvaluationSampler
    from engine.workers import Workers

    class Batches:
        def __len__(self): return 8
        def __init__(self, size): self.size = size
        def __getitem__(self, draw): return np.zeros(self.size, np.uint8)

    if __name__ == "__main__":
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        for size in map(int, sys.argv[1:]):
            workers = Workers(1)
            loader = MeasuredLoader(
                Reader(Batches(size), False), sampler=Pending(EvaluationSampler(8, 1)), batch_size=None, num_workers=1,
                worker_init_fn=workers, multiprocessing_context=workers.context,
            )
            loader.started = workers
            count = 0
            try:
                for batch in loader:
                    count += 1
                    del batch
                print(count, "batches")
            except LoadingError as error:
                print(error)
"""


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting asks for root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_in_a_container_with_little_of_it(tmp_path):
    """Two batches of 0.4 MB fit, and a third waits for room; one of 3 MB never fits."""
    (tmp_path / "load.py").write_text(textwrap.dedent(LOAD))
    command = f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} load.py 400000 3000000"
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, timeout=150,
    )  # fmt: skip
    if "unshare failed" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no mount namespace: {run.stderr}")
    warning, batches, failure = run.stdout.splitlines()
    assert "/dev/shm had 1020.0 KiB free, but up to 1.1 MiB may be needed (390.6 KiB a batch, 2 ahead for" in warning
    assert batches == "8 batches"
    assert failure.startswith("loading batch 0 of epoch 0 (samples 0) failed: ")
    assert "a batch has 2.9 MiB, but /dev/shm has" in failure and "free of 1.0 MiB" in failure
    assert "--shm-size" in failure
