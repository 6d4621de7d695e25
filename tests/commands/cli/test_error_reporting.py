"""Checks the exit code and the message of each kind of failure."""

import os

import pytest
from torch.distributed import DistNetworkError

from commands.cli.configs.config_files import locate_setting_error
from commands.cli.error_reporting import exit_code_for_rank, mark_parent, report_error
from commands.cli.main import main
from tests.conftest import TINY
from tests.support.faults.step_faults import fault


def test_wrong_input_is_logged_without_traceback(messages):
    assert report_error(ValueError("batch_size 3 does not split")) == 2
    assert messages[0] == "error: batch_size 3 does not split"


@pytest.mark.parametrize(
    ("key", "value", "section"),
    [("trainer.gradient_clip_val", "-1", "trainer:\n"), ("model.init_args.top_k", "0", "model:\n  init_args:\n")],
)
def test_a_number_out_of_range_has_the_file_and_line_of_its_setting(tmp_path, messages, key, value, section):
    indent, name = "  " * section.count("\n"), key.rpartition(".")[2]
    config = tmp_path / "a.yaml"
    config.write_text(f"# a comment\n{section}{indent}{name}: {value}\n")
    with pytest.raises(SystemExit) as end:
        main(["fit", *TINY, "--config", str(config)])
    assert end.value.code == 2
    (line,) = (message for message in messages if message.startswith("error: "))
    assert line.startswith(f"error: {config}:{2 + section.count(chr(10))}: {key}")
    with pytest.raises(SystemExit):
        main(["fit", *TINY, "--config", str(config), f"--{key}={value}"])
    assert messages[-2].startswith(f"error: {key}"), "the command line overrides the file"


def test_a_setting_inside_the_value_of_an_option_has_no_line_of_a_file(tmp_path, messages):
    config = tmp_path / "a.yaml"
    config.write_text("trainer:\n  gradient_clip_val: 1.0\n")
    with pytest.raises(SystemExit):
        main(["fit", *TINY, "--config", str(config), "--trainer", "{gradient_clip_val: -1}"])
    assert messages[-2].startswith("error: trainer.gradient_clip_val"), "the file has another value"


def test_an_old_group_in_a_file_is_located_by_its_current_name(tmp_path):
    (tmp_path / "a.yaml").write_text("example_log:\n  number: -1\n")
    arguments = ["fit", "--config", str(tmp_path / "a.yaml")]
    assert locate_setting_error("sample_previews.number must be at least 0", arguments) == f"{tmp_path / 'a.yaml'}:2: "


def test_a_failure_has_a_traceback(caplog):
    assert report_error(RuntimeError("out of memory")) == 1


def test_ranks_that_do_not_connect_get_a_line(messages):
    assert report_error(DistNetworkError("Failed to recv, got 0 bytes\nC++ stack:\n0 main")) == 1
    assert len(messages) == 1
    assert messages[0].startswith("error: the ranks did not connect: rank 0 has ended")
    assert messages[0].endswith("(Failed to recv, got 0 bytes)")
    assert report_error(DistNetworkError("")) == 1
    assert messages[1].endswith("(DistNetworkError)")


def test_a_logged_error_is_not_logged_again(messages):
    error = ValueError("row 7 of data.csv")
    error.exit_code = 1
    assert report_error(error) == 1
    assert messages == []


def test_during_training_an_error_is_a_failure(lockstep, monkeypatch, messages):
    monkeypatch.delenv("LOCKSTEP_DEBUG")
    with pytest.raises(SystemExit) as end:
        main(["fit", *TINY, *fault("RaiseAt", step=2), "--run_name", "a"])
    assert end.value.code == 1
    assert [line for line in messages if "injected" in line] == [
        "rank 0 failed at step 2 (training): RuntimeError: injected on process 0"
    ]


def test_a_full_disk_is_a_failure_without_traceback(messages):
    assert report_error(OSError(28, "No space left on device", "runs/a/config.yaml")) == 1
    assert messages == [
        "error: [Errno 28] No space left on device: 'runs/a/config.yaml' (`df -h` and `df -i` show what is full)"
    ]


def test_only_the_parent_of_lightnings_processes_has_the_exit_code():
    environ: dict[str, str] = {}
    mark_parent(environ)
    assert exit_code_for_rank(143, environ) == 143
    assert exit_code_for_rank(143, {**environ, "LOCKSTEP_STARTED_BY": str(os.getppid())}) == 0
    child = {"LOCAL_RANK": "1"}
    mark_parent(child)
    assert child == {"LOCAL_RANK": "1"}, "processes of torchrun have no parent of Lockstep's"
