"""Tests `train.py doctor` as people and programs start it."""

import json
import os
import socket
import subprocess
import sys

import pytest

from commands.doctor.main import main
from tests.conftest import REPOSITORY

SET_BY_OTHERS = ("MASTER_", "NCCL_", "GLOO_", "SLURM_", "TORCH_", "CUDA_", "PYTORCH_", "OMP_")
SPOILED = {
    "PYTORCH_CUDA_ALLOC_CONF": "expandable_segment:True",
    "GLOO_SOCKET_IFNAME": "nosuch9",
    "NCCL_MIN_NRINGS": "4",
    "OMP_NUM_THREADS": "512",
}


def doctor(folder, *arguments, **variables):
    """A process of its own, with no more variables than the test gives it."""
    environment = {key: value for key, value in os.environ.items() if not key.startswith(SET_BY_OTHERS)}
    command = [sys.executable, str(REPOSITORY / "train.py"), "doctor", *arguments]
    environment = {**environment, **variables}
    return subprocess.run(command, capture_output=True, text=True, timeout=150, cwd=folder, env=environment)


@pytest.mark.slow
def test_all_problems_of_a_machine_are_in_one_json_object(tmp_path):
    with socket.create_server(("", 0)) as taken:
        port = taken.getsockname()[1]
        result = doctor(tmp_path, "--json", MASTER_PORT=str(port), **SPOILED)
    report = json.loads(result.stdout)  # the object stands alone
    assert (result.returncode, report["exit_code"], report["status"]) == (2, 2, "fail"), result.stderr
    found = {(finding["check"], finding["status"]) for finding in report["findings"]}
    assert {("port", "fail"), ("interfaces", "fail"), ("variables", "fail"), ("threads", "warn")} <= found
    assert {("python", "ok"), ("packages", "ok"), ("gloo", "ok")} <= found
    (who,) = [finding["found"] for finding in report["findings"] if finding["check"] == "port"]
    assert f"taken by process {os.getpid()}" in who
    assert all(finding["why"] and finding["remedy"] for finding in report["findings"] if finding["status"] != "ok")
    assert list(tmp_path.iterdir()) == []


def test_a_broken_pytorch_is_reported(tmp_path):
    broken = tmp_path / "path/torch"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise ImportError('libcudart.so.13: cannot open shared object file')\n")
    result = doctor(tmp_path, PYTHONPATH=str(broken.parent))
    assert result.returncode == 2, result.stderr
    assert "libcudart.so.13: cannot open shared object file" in " ".join(result.stdout.split())
    assert "memory" in result.stdout  # the other checks still run


def test_help_explains_and_what_makes_no_sense_is_refused(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 120
    for words in ("--json", "exit code: 0", "torchrun --nproc_per_node 2 train.py doctor", "docs/doctor.md"):
        assert words in text
    with pytest.raises(SystemExit) as end:
        main(["--trainer.devices", "2"])
    assert end.value.code == 2
    assert "add --config FILE" in capsys.readouterr().err
    for wait in ("nan", "-1", "inf", "soon"):
        with pytest.raises(SystemExit) as end:
            main([f"--wait={wait}"])
        assert end.value.code == 2
        assert f"--wait: expected seconds, a number of more than 0, found '{wait}'" in capsys.readouterr().err
