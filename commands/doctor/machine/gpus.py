"""Checks the GPUs: their number, kinds, errors, free memory and peer access."""

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace

from commands.doctor.check import Finding
from commands.doctor.launch_plan import WITHOUT_CUDA, LaunchPlan
from commands.doctor.machine.nvidia_smi import Driver, Gpu

_IDLE = 500
"""MiB that driver and display may use on an idle GPU."""


def check_gpus(plan: LaunchPlan, driver: Driver, environ: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the problems of the GPUs that CUDA shows to this process, or what they are.

    Args:
        plan: ranks on this node, each of which uses a GPU, and the accelerator.
        driver: output of nvidia-smi.
        environ: environment variables, of which CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are read.
    """
    on_cpu, requested = plan.accelerator in WITHOUT_CUDA, plan.accelerator in ("gpu", "cuda")
    if driver.error:
        why = "the driver does not answer: no GPU can be used"
        remedy = "sudo modprobe nvidia, or restart the machine, as after an update of the driver; dmesg | grep -i xid"
        yield Finding("gpus", "warn" if on_cpu else "fail", driver.error, why, remedy)
        return
    try:
        seen = _visible(driver, environ)
    except ValueError as error:
        why = "PyTorch ignores this entry and all after it"
        yield Finding("gpus", "warn" if on_cpu else "fail", str(error), why, "unset CUDA_VISIBLE_DEVICES")
        return
    if not seen:
        hidden = f"{len(driver.gpus)} GPU(s), hidden by CUDA_VISIBLE_DEVICES={environ.get('CUDA_VISIBLE_DEVICES')!r}"
        found = hidden if driver.gpus else "no NVIDIA GPU"
        if requested:
            why = f"the config has trainer.accelerator {plan.accelerator}"
            remedy = "--trainer.accelerator auto  # or docker run --gpus all"
            yield Finding("gpus", "fail", found, why, "unset CUDA_VISIBLE_DEVICES" if driver.gpus else remedy)
        elif driver.gpus and not on_cpu:
            yield Finding("gpus", "warn", found, "training will use the CPU", "unset CUDA_VISIBLE_DEVICES")
        else:
            yield Finding("gpus", "ok", found)
        return
    problems = [] if on_cpu else list(_problems(plan, driver, seen, environ))
    yield from problems
    if not any(finding.status == "fail" for finding in problems):
        kinds = {gpu.name: sum(each.name == gpu.name for each in seen) for gpu in seen}
        listed = ", ".join(f"{count} x {name}" for name, count in kinds.items())
        free = [gpu.total - gpu.used for gpu in seen if gpu.total]
        yield Finding("gpus", "ok", listed + (f"; at least {min(free) / 1024:.1f} GiB free on each" if free else ""))


def visible_gpus(driver: Driver, environ: Mapping[str, str]) -> int:
    """Return the number of GPUs that CUDA shows; 0 if CUDA_VISIBLE_DEVICES is wrong, which `check_gpus` reports."""
    try:
        return len(_visible(driver, environ))
    except ValueError:
        return 0


def _problems(plan: LaunchPlan, driver: Driver, seen: list[Gpu], environ: Mapping[str, str]) -> Iterator[Finding]:
    if plan.devices and plan.devices > len(seen):
        found = f"{len(seen)} visible, but {plan.devices} ranks need a GPU each"
        yield Finding("gpus", "fail", found, "a rank without its own GPU ends with `invalid device ordinal`",
                      f"--trainer.devices {len(seen)}  # or unset CUDA_VISIBLE_DEVICES, or request more")  # fmt: skip
    names = sorted({gpu.name for gpu in seen})
    if len(names) > 1:
        first = [str(gpu.index) for gpu in seen if gpu.name == names[0]]
        yield Finding("gpus", "warn", f"of different kinds: {', '.join(names)}",
                      "all ranks wait for the slowest in every step, and the smallest memory limits the micro-batch",
                      f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(first)}")  # fmt: skip
    visible_devices = environ.get("CUDA_VISIBLE_DEVICES")
    # A UUID names the same GPU in any order.
    numbered = visible_devices is None or any(word.strip().isdigit() for word in visible_devices.split(","))
    kinds = {gpu.name for gpu in driver.gpus}
    if numbered and len(kinds) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield Finding("gpus", "warn", "GPUs of different kinds are here, and CUDA_DEVICE_ORDER is not PCI_BUS_ID",
                      "CUDA then numbers the fastest GPU first, so that its numbers, as in CUDA_VISIBLE_DEVICES, may "
                      "differ from those of nvidia-smi and of this report",
                      "export CUDA_DEVICE_ORDER=PCI_BUS_ID")  # fmt: skip
    for gpu in seen:
        yield from _problems_of(gpu, driver)
    seen_indices = {gpu.index for gpu in seen}
    pairs = [f"{a}-{b}" for a, b in driver.without_peer_access if {a, b} <= seen_indices]
    if pairs:
        why = "without peer access gradients go through the machine's memory, which is slower"
        remedy = "nvidia-smi topo -m  # choose GPUs that are connected (CUDA_VISIBLE_DEVICES), or disable ACS/IOMMU"
        yield Finding("peer access", "warn", f"none between GPUs {', '.join(pairs)}", why, remedy)
    elif len(seen) > 1:
        yield Finding("peer access", "ok", f"between all {len(seen)} GPUs")


def _problems_of(gpu: Gpu, driver: Driver) -> Iterator[Finding]:
    processes = [item for item in driver.processes if item.uuid == gpu.uuid and item.pid != os.getpid()]
    listed = ", ".join(f"{item.name} (pid {item.pid}, {item.used} MiB)" for item in processes)
    users = listed or "processes of other users or containers"
    remedy = "wait, or choose other GPUs with CUDA_VISIBLE_DEVICES"
    if processes:
        remedy += f"; to end a dead run of yours: kill {' '.join(str(item.pid) for item in processes)}"
    if gpu.mode == "Prohibited" or (gpu.mode == "Exclusive_Process" and processes):
        found = f"GPU {gpu.index} is in compute mode {gpu.mode}" + (f", used by {users}" if processes else "")
        yield Finding("gpus", "fail", found, "no further process may use it: `CUDA-capable device(s) is/are busy`",
                      f"{remedy}; sudo nvidia-smi -i {gpu.index} -c DEFAULT")  # fmt: skip
    elif gpu.total and (processes or gpu.used > _IDLE):
        found = f"GPU {gpu.index}: {gpu.used} of {gpu.total} MiB used, {gpu.busy} % busy, by {users}"
        why = "their memory is missing for the micro-batch, and their computation slows all ranks"
        yield Finding("gpus", "warn", found, why, remedy)
    if gpu.ecc_errors:
        found = f"GPU {gpu.index}: {gpu.ecc_errors} uncorrectable ECC errors"
        yield Finding("gpus", "fail", found,
                      "it computes wrong values or ends the run (`uncorrectable ECC error`)",
                      f"sudo nvidia-smi -r -i {gpu.index}; if they return, replace it")  # fmt: skip
    if gpu.mig:
        yield Finding("gpus", "warn", f"GPU {gpu.index} is partitioned (MIG)",
                      "a process sees one instance only, and NCCL does not connect instances of one GPU",
                      f"sudo nvidia-smi -i {gpu.index} -mig 0  # or train with one rank")  # fmt: skip


def _visible(driver: Driver, environ: Mapping[str, str]) -> list[Gpu]:
    """Return the GPUs that CUDA shows, in the order of CUDA_VISIBLE_DEVICES; of MIG instances the first only.

    Raises:
        ValueError: the variable names a GPU that does not exist.
    """
    visible_devices = environ.get("CUDA_VISIBLE_DEVICES")
    if visible_devices is None:
        return list(driver.gpus)
    seen: list[Gpu] = []
    for word in filter(None, (word.strip() for word in visible_devices.split(","))):
        # CUDA ignores -1 and all entries after it.
        if word == "-1":
            break
        if word.startswith("MIG-"):
            return [_mig_instance(driver, word)]
        matching = [gpu for gpu in driver.gpus if str(gpu.index) == word or gpu.uuid.startswith(word)]
        if driver.gpus and not matching:
            indices = ", ".join(str(gpu.index) for gpu in driver.gpus)
            raise ValueError(f"CUDA_VISIBLE_DEVICES={visible_devices}: there is no GPU {word}, only {indices}")
        seen += matching[:1]
    return seen


def _mig_instance(driver: Driver, uuid: str) -> Gpu:
    """Return a MIG instance as a GPU whose memory is unknown.

    Raises:
        ValueError: it does not exist.
    """
    for instance in driver.mig_instances:
        if instance.uuid.startswith(uuid):
            card = next(gpu for gpu in driver.gpus if gpu.index == instance.gpu)
            name = f"{card.name} (MIG {instance.profile})"
            return replace(card, uuid=instance.uuid, name=name, total=0, used=0, mig=False)
    existing = ", ".join(instance.uuid for instance in driver.mig_instances) or "none"
    raise ValueError(f"CUDA_VISIBLE_DEVICES={uuid}: there is no such MIG instance; nvidia-smi -L names {existing}")
