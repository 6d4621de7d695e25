"""Which failure ends with which exit code, and what it says."""

import pytest
from torch.distributed import DistNetworkError

from commands.cli import main
from commands.ending import end_with
from tests.conftest import TINY
from tests.distributed.faults import fault


def test_wrong_input_gets_its_message_alone(said):
    assert end_with(ValueError("batch_size 3 does not split")) == 2
    assert said[0] == "error: batch_size 3 does not split"


def test_a_failure_gets_its_traceback(caplog):
    assert end_with(RuntimeError("out of memory")) == 1


def test_processes_that_do_not_connect_get_a_line(said):
    assert end_with(DistNetworkError("Failed to recv, got 0 bytes\nC++ stack:\n0 main")) == 1
    assert len(said) == 1 and said[0].startswith("error: the processes did not connect, the first one has ended")
    assert said[0].endswith("(Failed to recv, got 0 bytes)")


def test_what_has_been_said_is_not_said_again(said):
    error = ValueError("row 7 of data.csv")
    error.exit_code = 1
    assert end_with(error) == 1 and said == []


def test_during_training_an_error_is_a_failure(lockstep, monkeypatch, said):
    monkeypatch.delenv("LOCKSTEP_DEBUG")
    with pytest.raises(SystemExit) as end:
        main(["fit", *TINY, *fault("RaiseAt", step=2), "--run_name", "a"])
    assert end.value.code == 1
    assert [line for line in said if "injected" in line] == [
        "process 0 failed at step 2 (training): RuntimeError: injected on process 0"
    ]
