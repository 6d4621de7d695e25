"""Checks what a process is started with, before Lightning is imported: working directory and launcher's variables."""

import os
from collections.abc import Mapping

_RANKS = (
    "RANK", "LOCAL_RANK", "GROUP_RANK", "NODE_RANK", "SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_JOB_ID",
    "JSM_NAMESPACE_RANK", "SLURM_RESTART_COUNT", "TORCHELASTIC_RESTART_COUNT",
)  # fmt: skip
_SIZES = ("WORLD_SIZE", "LOCAL_WORLD_SIZE", "SLURM_NTASKS", "SLURM_NNODES")
# `torchrun --master_port 0` passes port 0 on to its ranks. A single rank does not use it.
_MINIMA = {**dict.fromkeys(_RANKS, 0), **dict.fromkeys(_SIZES, 1), "MASTER_PORT": 0}
_MAXIMA = {"MASTER_PORT": 65535}


def check_process(environ: Mapping[str, str]) -> None:
    """Check the working directory and `check_rank_variables`.

    Raises:
        ValueError: see `check_rank_variables`; or the directory in which the command was started has been removed.
    """
    try:
        os.getcwd()
    except FileNotFoundError as error:
        raise ValueError("the working directory has been removed; expected one that exists: cd to another") from error
    check_rank_variables(environ)


def check_rank_variables(environ: Mapping[str, str]) -> None:
    """Check the variables of a launcher that are numbers.

    Args:
        environ: environment variables.

    Raises:
        ValueError: a variable is not a number, or out of its range, or several ranks would meet at port 0; the message
            names it.
    """
    for name, least in _MINIMA.items():
        text = environ.get(name)
        if text is None:
            continue
        maximum = _MAXIMA.get(name)
        # isdigit would accept superscripts, for which `int` raises an error.
        if not text.strip().isdecimal() or int(text) < least or (maximum is not None and int(text) > maximum):
            expected = f"a whole number of at least {least}" + (f" and at most {maximum}" if maximum else "")
            raise ValueError(
                f"the environment variable {name} is {text!r}, expected {expected}, as a launcher sets it; `unset "
                f"{name}` if no launcher started this process"
            )
    if int(environ.get("WORLD_SIZE", "1")) > 1 and int(environ.get("MASTER_PORT", "1")) == 0:
        raise ValueError(
            f"MASTER_PORT is 0, where the {environ['WORLD_SIZE'].strip()} ranks of WORLD_SIZE cannot meet; give the "
            "launcher a free port, as --master_port 29501, or torchrun --standalone, which finds one"
        )
