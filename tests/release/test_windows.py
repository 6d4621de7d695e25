"""The command starts without POSIX modules and signals, as on Windows."""

import subprocess
import sys

import pytest

from tests.conftest import REPOSITORY, TINY

PROGRAM = """
import builtins, sys

import filelock, psutil, torch, lightning.pytorch.cli, torch.utils.tensorboard, torch.distributed

HIDDEN = {"fcntl", "resource", "pwd", "grp", "termios", "syslog", "tty", "pty", "readline"}
ROOM = sys.argv.pop(1)  # what this repository imports; others have files of their own for Windows
usual = builtins.__import__

def guarded(name, globals=None, *rest, **named):
    importer = (globals or {}).get("__file__") or ""
    if name in HIDDEN and importer.startswith(ROOM) and "site-packages" not in importer:
        raise ModuleNotFoundError(f"No module named {name!r}", name=name)
    return usual(name, globals, *rest, **named)

builtins.__import__ = guarded

import os, signal
for name in ("SIGUSR1", "SIGUSR2", "SIGHUP", "SIGQUIT", "SIGALRM", "SIGKILL", "SIGSTOP", "SIGCONT", "alarm",
             "siginterrupt", "setitimer", "pthread_sigmask", "sigwait"):
    if hasattr(signal, name):
        delattr(signal, name)
for name in ("register_at_fork", "fork", "killpg", "getsid", "setsid", "getuid", "geteuid", "getpgid", "sysconf"):
    if hasattr(os, name):
        delattr(os, name)

from commands.cli.main import main
main(sys.argv[1:])
"""


@pytest.mark.slow
def test_fit_runs_without_modules_of_posix(tmp_path):
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(REPOSITORY), "fit", *TINY, "--trainer.max_steps", "4", "--run_name", "a"],
        cwd=tmp_path,
        env={"PATH": "", "PYTHONPATH": str(REPOSITORY), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""},
        capture_output=True,
        text=True,
        timeout=150,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "runs/a/checkpoints/last.ckpt").exists()
