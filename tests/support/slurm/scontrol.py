"""A program `scontrol` that answers as SLURM does."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

SHOW = "JobId=7 JobName={name} JobState={state} Reason=None Requeue={requeue} Restarts=0 BatchFlag={batch} Reboot=0"


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Callable[[], list[str]]]:
    """Install a scontrol; return a function that sets its state and returns a reader of its calls."""
    folder = tmp_path / "bin"
    folder.mkdir()
    calls = tmp_path / "calls"

    def answers(
        state: str = "RUNNING", requeue: int = 1, batch: int = 1, code: int = 0, name: str = "train"
    ) -> Callable[[], list[str]]:
        show = SHOW.format(state=state, requeue=requeue, batch=batch, name=name)
        script = f"""#!/bin/sh
echo "$@" >> {calls}
if [ $1 = show ]; then echo "{show}"; exit 0; fi
[ {code} = 0 ] || echo "slurm_requeue error: Requested operation is presently disabled" >&2
exit {code}
"""
        (folder / "scontrol").write_bytes(script.encode("utf-8", "surrogateescape"))
        (folder / "scontrol").chmod(0o755)
        return lambda: calls.read_text().splitlines() if calls.exists() else []

    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    return answers
