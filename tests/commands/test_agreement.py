"""All processes of a run act on one answer."""

from datetime import timedelta

import pytest
from torch.distributed import TCPStore

from commands.agreement import agreed


def never():
    raise AssertionError("asked, although the first process decides")


def test_the_processes_that_a_run_starts_take_its_answer():
    environ: dict[str, str] = {}
    assert agreed("run_name", lambda: "mine", environ) == "mine"
    assert agreed("run_name", never, {**environ, "LOCAL_RANK": "1", "WORLD_SIZE": "2"}) == "mine"
    assert agreed("run_name", lambda: "next", environ) == "next", "the next run of the same process decides anew"


def test_processes_started_apart_must_be_told():
    with pytest.raises(ValueError, match="cannot agree on its run name: .*--run_name NAME"):
        agreed("run_name", never, {"LOCAL_RANK": "0", "WORLD_SIZE": "2"})


def test_torchrun_workers_agree_through_their_store():
    store = TCPStore("127.0.0.1", 0, is_master=True, timeout=timedelta(seconds=20), wait_for_workers=False)
    worker = {"TORCHELASTIC_RUN_ID": "x", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(store.port)}
    assert agreed("run_name", lambda: "first", {**worker, "RANK": "0"}) == "first"
    assert agreed("run_name", never, {**worker, "RANK": "1"}) == "first"
    assert agreed("run_name", never, {**worker, "RANK": "0"}) == "first", "kept over a restart of the processes"
    assert agreed("checkpoint_1", lambda: "", {**worker, "RANK": "0"}) == ""
