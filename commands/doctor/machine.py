"""The checks of the machine that this process runs on, each bound to what it looks at."""

import os
import platform
import socket
from collections.abc import Mapping
from pathlib import Path

from commands.doctor import cores, gpus, host_name, interfaces, memory, nvidia, port, slurm, variables, versions
from commands.doctor.finding import Check
from commands.doctor.interfaces import present_interfaces
from commands.doctor.plan import Plan
from engine.cores import usable_cores

_INFINIBAND = Path("/sys/class/infiniband")


def machine_checks(plan: Plan, environ: Mapping[str, str]) -> list[Check]:
    """All of them, in the order in which they are told.

    Args:
        plan: what is to be started here.
        environ: variables and their values.
    """
    affinity, usable = cores.allowed_cores(), usable_cores()
    infiniband = _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir())
    answers: list[nvidia.Driver] = []

    def driver() -> nvidia.Driver:
        """Asked once, by the first check that wants to know, within its time limit."""
        if not answers:
            answers.append(nvidia.driver())
        return answers[0]

    def here() -> Plan:
        """With what is chosen at the start: by then the GPUs are known."""
        seen = gpus.shown(driver(), environ)
        return plan.on(seen, usable, lambda processes: cores.threads_started(processes, affinity, environ))

    checks = [
        Check("python", versions.python),
        Check("packages", versions.packages),
        Check("torch", lambda: versions.torch_and_driver(driver()), 90),
        Check("communication", versions.communication, 60),
        Check("gpus", lambda: gpus.gpus(plan, driver(), environ), 60),
        Check("cores", lambda: cores.cores(here(), os.cpu_count() or 1, affinity, usable)),
        Check("threads", lambda: cores.threads(here(), affinity, usable, environ)),
        Check("memory", lambda: memory.memory(here())),
    ]
    if platform.system() == "Linux":  # elsewhere shared memory is no folder
        checks.append(Check("shared memory", lambda: memory.shared_memory(here())))
    if platform.system() != "Windows":
        from commands.doctor import limits

        checks.append(Check("limits", lambda: limits.limits(here())))
    return [
        *checks,
        Check("port", lambda: port.port(plan, environ)),
        Check("host name", lambda: host_name.host_name(plan, environ, socket.gethostname(), present_interfaces())),
        Check("master address", lambda: host_name.master_address(plan, environ)),
        Check("interfaces", lambda: interfaces.interfaces(plan, environ, present_interfaces())),
        Check("variables", lambda: variables.harmful_variables(environ, infiniband)),
        Check("slurm", lambda: slurm.slurm(plan, environ)),
    ]
