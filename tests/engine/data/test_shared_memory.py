"""A small /dev/shm gives a warning before a worker fails. One test mounts a small one."""

import os
import shutil
import subprocess
import sys
import textwrap

import pytest
import torch

from engine.data.shared_memory import free_bytes, move_to_shared_memory, shortage_message
from engine.system.byte_size import format_bytes
from tests.conftest import REPOSITORY


def test_tensors_move_to_shared_memory():
    batch = ({"a": torch.ones(3, 4), "b": ["text", 7]}, torch.arange(2), torch.zeros(0), torch.ones(2, 2).T)
    assert move_to_shared_memory(batch) == 3 * 4 * 4 + 2 * 8 + 2 * 2 * 4
    assert batch[0]["a"].is_shared()
    assert batch[1].is_shared()
    assert batch[0]["a"].sum() == 12
    assert move_to_shared_memory(batch) == 0  # all are shared already


def test_a_machine_without_a_shared_memory_folder_is_accepted(tmp_path):
    assert free_bytes(tmp_path) > 0
    assert free_bytes(tmp_path / "nowhere") is None
    assert move_to_shared_memory(torch.ones(4), folder=tmp_path / "nowhere") == 16  # torch uses another folder


def test_the_warning_counts_all_batches_in_flight():
    mib = 1 << 20
    assert shortage_message(mib, workers=4, processes=8, free=72 * mib) is None  # 8 x (2 x 4 + 1)
    assert shortage_message(mib, workers=4, processes=8, free=72 * mib, prefetch_factor=3) is not None
    message = shortage_message(mib, workers=4, processes=8, free=64 * mib)
    assert "64.0 MiB free, but up to 72.0 MiB may be needed" in message
    assert "medium: Memory" in message
    assert (format_bytes(512), format_bytes(1536), format_bytes(5 << 30)) == ("512 bytes", "1.5 KiB", "5.0 GiB")


LOAD = """
    import logging, sys
    import numpy as np, torch
    from engine.data.dataloader import LoadingError, PendingSampler, SkipBadSamples, TimedDataLoader
    from engine.data.samplers import EvaluationSampler
    from engine.data.worker_process import Workers

    class Batches:
        def __len__(self): return 8
        def __init__(self, size): self.size = size
        def __getitem__(self, request): return np.zeros(self.size, np.uint8)

    if __name__ == "__main__":
        logging.basicConfig(format="%(message)s", stream=sys.stdout)
        for size in map(int, sys.argv[1:]):
            workers = Workers(1)
            loader = TimedDataLoader(
                SkipBadSamples(Batches(size), False), sampler=PendingSampler(EvaluationSampler(8, 1)),
                batch_size=None, num_workers=1, worker_init_fn=workers, multiprocessing_context=workers.context,
            )
            loader.workers = workers
            count = 0
            try:
                for batch in loader:
                    count += 1
                    del batch
                print(count, "batches")
            except LoadingError as error:
                print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="mounting needs root")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="no unshare")
def test_a_container_with_a_small_shared_memory(tmp_path):
    """Two batches of 0.4 MB fit, a third waits for space, and one of 3 MB never fits."""
    (tmp_path / "load.py").write_text(textwrap.dedent(LOAD))
    command = f"mount -t tmpfs -o size=1m tmpfs /dev/shm && exec {sys.executable} load.py 400000 3000000"
    run = subprocess.run(
        ["unshare", "--mount", "sh", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=150,
    )
    if "unshare failed" in run.stderr or "mount:" in run.stderr:
        pytest.skip(f"no mount namespace: {run.stderr}")
    warning, batches, failure = run.stdout.splitlines()
    assert "/dev/shm had 1020.0 KiB free, but up to 1.1 MiB may be needed (390.6 KiB a batch, 2 ahead for" in warning
    assert batches == "8 batches"
    assert failure.startswith("loading batch 0 of epoch 0 (samples 0) failed: ")
    assert "a batch has 2.9 MiB, but /dev/shm has" in failure
    assert "free of 1.0 MiB" in failure
    assert "--shm-size" in failure
