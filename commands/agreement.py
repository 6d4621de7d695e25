"""One answer for all processes of a run, before they can talk to each other.

What depends on the clock or on the files of the moment (a new run's name, which checkpoint is the newest) must not be
asked by each process for itself: they would get different answers and never notice.
"""

import os
from collections.abc import Callable, MutableMapping
from datetime import timedelta

_PREFIX = "LOCKSTEP_AGREED_"
_PATIENCE = timedelta(minutes=5)  # the others may still be importing


def agreed(question: str, answer: Callable[[], str], environ: MutableMapping[str, str] | None = None) -> str:
    """The first process's answer.

    Under torchrun it goes through the store that torchrun's agent keeps, which outlives a restart of the processes; to
    processes that Lightning starts, through their environment. Processes of srun each answer for themselves, from the
    job's number and from files that nothing changes while they start.

    Raises:
        ValueError: processes were started apart from each other and have nothing to agree through.
    """
    environ = os.environ if environ is None else environ
    variable = _PREFIX + question.upper()
    if "TORCHELASTIC_RUN_ID" in environ:
        return _through_store(question, answer, environ)
    if int(environ.get("SLURM_NTASKS", "1")) > 1:
        return answer()
    if environ.get("LOCAL_RANK", "0") != "0" and variable in environ:
        return environ[variable]
    if int(environ.get("WORLD_SIZE", "1")) > 1 and variable not in environ:
        raise ValueError(
            "the processes of this run were started apart from each other and cannot agree on its "
            f"{question.replace('_', ' ')}: give all of them the same --run_name NAME and, where there is one, "
            "--ckpt_path FILE, or start them with torchrun or srun"
        )
    environ[variable] = answer()
    return environ[variable]


def _through_store(question: str, answer: Callable[[], str], environ: MutableMapping[str, str]) -> str:
    from torch.distributed import TCPStore

    store = TCPStore(environ["MASTER_ADDR"], int(environ["MASTER_PORT"]), is_master=False, timeout=_PATIENCE)
    key = f"lockstep/{question}"
    if environ["RANK"] == "0" and not store.check([key]):
        store.set(key, answer())
    return store.get(key).decode()
