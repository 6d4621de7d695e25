"""Tests what the doctor reports about a folder for checkpoints that cannot be written to."""

import errno

import pytest

from commands.doctor.training import checkpoint_storage
from commands.doctor.training.checkpoint_storage import checkpoint_findings


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), "df -h "),
        (OSError(errno.EDQUOT, "Disk limit exceeded"), "df -h "),
        (PermissionError(errno.EACCES, "Permission denied", "/quota/No space"), "ls -ld "),
    ],
)
def test_the_remedy_depends_on_the_kind_of_error(tmp_path, monkeypatch, error, remedy):
    def refuse(directory, size):
        raise error

    monkeypatch.setattr(checkpoint_storage, "_write", refuse)
    (finding,) = checkpoint_findings(tmp_path, None, 1)
    assert finding.status == "fail"
    assert finding.found == f"{tmp_path} cannot be written to: {error.strerror}"
    assert finding.remedy.startswith(remedy)


def test_a_full_disk_is_not_written_to(tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_storage.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 0}))
    (finding,) = checkpoint_findings(tmp_path, None, 1)
    assert finding.remedy == f"df -h {tmp_path}; free space"
