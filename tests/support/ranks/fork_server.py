"""Forks processes of train.py after their imports, so that a fault test takes seconds and not half a minute.

A process that has imported everything reads requests on its standard input, one JSON object a line, and forks a child
for each: `{"arguments": [...], "environment": {...}, "folder": "...", "output": "..."}`. Arguments that begin with
`-m` name a module that runs in place of train.py. It answers with
`{"started": pid, "output": "..."}` and, when a child has ended, `{"ended": pid, "code": exit code}`, negative for a
signal. `{"ready": pid}` is its first message. With the argument `bare` it imports nothing first.
"""

import atexit
import ctypes
import gc
import json
import os
import runpy
import select
import signal
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

PR_SET_PDEATHSIG = 1


def serve() -> dict[str, Any] | None:
    """Answers requests until the input ends. In a forked child it returns the request, to be run."""
    children: set[int] = set()
    waiting = b""
    while True:
        readable, _, _ = select.select([0], [], [], 0.02)
        for pid in list(children):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                children.discard(pid)
                _say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})
        if not readable:
            continue
        received = os.read(0, 65536)
        if not received:
            return None
        *lines, waiting = (waiting + received).split(b"\n")
        for line in lines:
            request = json.loads(line)
            pid = os.fork()
            if pid == 0:
                return request
            children.add(pid)
            _say({"started": pid, "output": request["output"]})


def _say(message: dict[str, Any]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def become(request: dict[str, Any]) -> None:
    """Makes this child what `python train.py ...` would be in the request's folder and environment."""
    os.setsid()
    if sys.platform == "linux":  # it ends with the tests, also when they are killed
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.environ.clear()
    os.environ.update(request["environment"])
    os.chdir(request["folder"])
    output = os.open(request["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, nothing), (1, output), (2, output)):
        os.dup2(source, target)
    sys.modules["__main__"].__spec__ = None  # what Lightning starts besides is train.py, too
    sys.argv = [str(Path(__file__).resolve().parents[3] / "train.py"), *request["arguments"]]


def preload() -> None:
    """Import what every run imports later, but nothing that starts threads: a fork does not have them."""
    import torch.utils.tensorboard  # noqa: F401

    if find_spec("transformers"):  # a machine with a GPU may lack it and peft
        import transformers.models.qwen2.modeling_qwen2  # noqa: F401
        import transformers.models.siglip.modeling_siglip  # noqa: F401

    # bitsandbytes, which peft imports, uses a GPU that it sees.
    if find_spec("peft") and os.environ.get("CUDA_VISIBLE_DEVICES") == "":
        from engine.system.bitsandbytes_import import silence_bitsandbytes_import

        silence_bitsandbytes_import()
        import peft  # noqa: F401

    _parse()
    gc.freeze()  # a child's collections leave alone what it shares with this process


def _parse() -> None:
    """Parse a command once: what jsonargparse keeps of signatures and docstrings is a fifth of a child's CPU time."""
    from tests.support.families.tiny_linear import TINY_FAMILY
    from tests.support.fit_parser import fit_parser

    fit_parser(*TINY_FAMILY, "--seed_everything", "false")


def run(request: dict[str, Any]) -> None:
    """Run what the request names, and leave its exit code to `leave`."""
    from commands.cli.main import main

    try:
        if request["arguments"][0] == "-m":
            sys.argv = request["arguments"][1:]
            runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
        else:
            main()
    except SystemExit as ending:
        if isinstance(ending.code, int):
            exit_codes.append(ending.code)
        raise
    exit_codes.append(0)


exit_codes: list[int] = []
"""Exit code of this child once it is known; an exception leaves it to the interpreter."""


def leave() -> None:
    """Ends a child at once: to free what it shares with the server, the system would copy it first.

    That is a third of a short run's CPU time. Threads have been joined and the other exit functions called by now.
    """
    if exit_codes:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(exit_codes[0])


if __name__ == "__main__":
    atexit.register(leave)  # before the imports, whose exit functions come first then
    if sys.argv[1:] != ["bare"]:
        preload()
    _say({"ready": os.getpid()})
    request = serve()
    if request is not None:
        become(request)
        run(request)
