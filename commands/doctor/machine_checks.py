"""Lists the checks of this machine, each bound to what it examines."""

import os
import platform
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from commands.doctor.check import Check, Finding
from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.machine import cpu, env_variables, gpus, memory, nvidia_smi, openmp, slurm, versions
from commands.doctor.network import host_name, interfaces, port
from commands.doctor.network.interfaces import present_interfaces
from engine.system.cpu_count import affinity_cores, available_cpus

_INFINIBAND = Path("/sys/class/infiniband")


def machine_checks(plan: LaunchPlan, environ: Mapping[str, str]) -> list[Check]:
    """Return the checks in the order in which they run.

    Args:
        plan: ranks to be started on this machine.
        environ: environment variables.
    """
    affinity, usable = affinity_cores(), available_cpus()
    queried: list[nvidia_smi.Driver] = []

    def driver() -> nvidia_smi.Driver:
        """Query the driver once, within the time limit of the first check that needs it."""
        if not queried:
            queried.append(nvidia_smi.query_driver())
        return queried[0]

    def local_plan() -> LaunchPlan:
        """Return the plan with what the training chooses; needs the GPUs."""
        seen = gpus.visible_gpus(driver(), environ)
        return plan.resolve(seen, usable, lambda processes: cpu.threads_started(processes, affinity, environ))

    def on_cpu() -> bool:
        return plan.accelerator == "cpu" or not gpus.visible_gpus(driver(), environ)

    def contention() -> Iterator[Finding]:
        # Under a CPU quota the load of the machine's other cores does not matter.
        busy = openmp.busy_cores() if usable == affinity else 0.0
        return openmp.check_contention(local_plan(), usable, busy, cpu.requested_threads(plan, environ))

    checks = [
        Check("python", versions.check_python),
        Check("packages", versions.check_packages),
        Check("torch", lambda: versions.check_torch_and_driver(driver()), 90),
        Check("communication", versions.check_backends, 60),
        Check("gpus", lambda: gpus.check_gpus(plan, driver(), environ), 60),
        Check("cores", lambda: cpu.check_cores(local_plan(), os.cpu_count() or 1, affinity, usable)),
        Check("threads", lambda: cpu.check_threads(local_plan(), affinity, usable, environ, on_cpu())),
        Check("thread spin", lambda: openmp.check_thread_spin(environ)),
        Check("contention", lambda: contention() if on_cpu() else ()),
        Check("memory", lambda: memory.check_memory(local_plan())),
    ]
    if platform.system() == "Linux":  # elsewhere shared memory is not a directory
        checks.append(Check("shared memory", lambda: memory.check_shared_memory(local_plan())))
    if platform.system() != "Windows":
        from commands.doctor.machine import ulimits

        checks.append(Check("limits", lambda: ulimits.check_limits(local_plan())))
    return [*checks, *_connection_checks(plan, environ)]


def _connection_checks(plan: LaunchPlan, environ: Mapping[str, str]) -> list[Check]:
    """Return the checks of how the ranks connect: addresses, network and the variables of the launcher."""
    infiniband = _INFINIBAND.is_dir() and any(_INFINIBAND.iterdir())
    return [
        Check("port", lambda: port.check_port(plan, environ)),
        Check(
            "host name", lambda: host_name.check_host_name(plan, environ, socket.gethostname(), present_interfaces())
        ),
        Check("master address", lambda: host_name.check_master_address(plan, environ)),
        Check("interfaces", lambda: interfaces.check_interfaces(plan, environ, present_interfaces())),
        Check("variables", lambda: env_variables.check_variables(environ, infiniband)),
        Check("slurm", lambda: slurm.check_slurm(plan, environ)),
    ]
