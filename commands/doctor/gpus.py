"""GPUs: as many as are to be used, alike, healthy, free, and able to read each other's memory."""

import os
from collections.abc import Iterator, Mapping

from commands.doctor.finding import Finding
from commands.doctor.nvidia import Driver, Gpu
from commands.doctor.plan import WITHOUT_CUDA, Plan

_OWN = 500
"""MiB that driver and display may hold on a GPU that is free."""


def gpus(plan: Plan, driver: Driver, environ: Mapping[str, str]) -> Iterator[Finding]:
    """What is wrong with those that this process may see; else what there is.

    Args:
        plan: how many processes are to be started on this node, each for one GPU, and on what.
        driver: what nvidia-smi says.
        environ: of which CUDA_VISIBLE_DEVICES and CUDA_DEVICE_ORDER are read.
    """
    on_cpu, asked = plan.accelerator in WITHOUT_CUDA, plan.accelerator in ("gpu", "cuda")
    if driver.complaint:
        why = "there is a driver, but it does not answer: no GPU can be used"
        remedy = "sudo modprobe nvidia, or restart the machine, as after an update of the driver; dmesg | grep -i xid"
        yield Finding("gpus", "warn" if on_cpu else "fail", driver.complaint, why, remedy)
        return
    try:
        seen = _visible(driver, environ)
    except ValueError as error:
        why = "PyTorch sees none from that entry on"
        yield Finding("gpus", "warn" if on_cpu else "fail", str(error), why, "unset CUDA_VISIBLE_DEVICES")
        return
    if not seen:
        hidden = f"{len(driver.gpus)} there, hidden by CUDA_VISIBLE_DEVICES={environ.get('CUDA_VISIBLE_DEVICES')!r}"
        found = hidden if driver.gpus else "none of NVIDIA here"
        if asked:
            why = f"the config asks for trainer.accelerator {plan.accelerator}"
            elsewhere = "--trainer.accelerator auto  # or docker run --gpus all"
            yield Finding("gpus", "fail", found, why, "unset CUDA_VISIBLE_DEVICES" if driver.gpus else elsewhere)
        elif driver.gpus and not on_cpu:
            yield Finding("gpus", "warn", found, "training will use the CPU", "unset CUDA_VISIBLE_DEVICES")
        else:
            yield Finding("gpus", "ok", found)
        return
    problems = [] if on_cpu else list(_problems(plan, driver, seen, environ))
    yield from problems
    if not any(finding.status == "fail" for finding in problems):
        kinds = {gpu.name: sum(each.name == gpu.name for each in seen) for gpu in seen}
        words = ", ".join(f"{count} x {name}" for name, count in kinds.items())
        room = [gpu.total - gpu.used for gpu in seen if gpu.total]
        yield Finding("gpus", "ok", words + (f"; at least {min(room) / 1024:.1f} GiB free on each" if room else ""))


def shown(driver: Driver, environ: Mapping[str, str]) -> int:
    """How many CUDA shows to this process; 0 where CUDA_VISIBLE_DEVICES is wrong, which `gpus` tells."""
    try:
        return len(_visible(driver, environ))
    except ValueError:
        return 0


def _problems(plan: Plan, driver: Driver, seen: list[Gpu], environ: Mapping[str, str]) -> Iterator[Finding]:
    if plan.devices and plan.devices > len(seen):
        found = f"{len(seen)} to be seen, {plan.devices} processes are to use one each"
        yield Finding("gpus", "fail", found, "a process without a GPU of its own ends with `invalid device ordinal`",
                      f"--trainer.devices {len(seen)}  # or unset CUDA_VISIBLE_DEVICES, or ask for more")  # fmt: skip
    names = sorted({gpu.name for gpu in seen})
    if len(names) > 1:
        first = [str(gpu.index) for gpu in seen if gpu.name == names[0]]
        yield Finding("gpus", "warn", f"of different kinds: {', '.join(names)}",
                      "all wait for the slowest in every step, and the smallest limits the micro-batch",
                      f"export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES={','.join(first)}")  # fmt: skip
    given = environ.get("CUDA_VISIBLE_DEVICES")
    numbered = given is None or any(word.strip().isdigit() for word in given.split(","))
    kinds = {gpu.name for gpu in driver.gpus}
    if numbered and len(kinds) > 1 and environ.get("CUDA_DEVICE_ORDER") != "PCI_BUS_ID":
        yield Finding("gpus", "warn", "GPUs of different kinds are here, and CUDA_DEVICE_ORDER is not PCI_BUS_ID",
                      "CUDA then counts the fastest one first: its number of a GPU, as in CUDA_VISIBLE_DEVICES, need "
                      "not be nvidia-smi's, by which they are called here",
                      "export CUDA_DEVICE_ORDER=PCI_BUS_ID")  # fmt: skip
    for gpu in seen:
        yield from _problems_of(gpu, driver)
    seen_indices = {gpu.index for gpu in seen}
    pairs = [f"{a}-{b}" for a, b in driver.apart if {a, b} <= seen_indices]
    if pairs:
        why = "without peer access gradients go through the machine's memory: slower, most of all with many GPUs"
        remedy = "nvidia-smi topo -m  # choose GPUs that are connected (CUDA_VISIBLE_DEVICES), or turn ACS/IOMMU off"
        yield Finding("peer access", "warn", f"none between GPUs {', '.join(pairs)}", why, remedy)
    elif len(seen) > 1:
        yield Finding("peer access", "ok", f"between all {len(seen)} GPUs")


def _problems_of(gpu: Gpu, driver: Driver) -> Iterator[Finding]:
    who = [o for o in driver.occupants if o.uuid == gpu.uuid and o.pid != os.getpid()]
    others = (
        ", ".join(f"{o.name} (pid {o.pid}, {o.used} MiB)" for o in who) or "processes that cannot be seen from here"
    )
    remedy = "wait, or choose other GPUs with CUDA_VISIBLE_DEVICES"
    if who:
        remedy += f"; a run of your own that has died: kill {' '.join(str(o.pid) for o in who)}"
    if gpu.mode == "Prohibited" or (gpu.mode == "Exclusive_Process" and who):
        found = f"GPU {gpu.index} is in compute mode {gpu.mode}" + (f", used by {others}" if who else "")
        yield Finding("gpus", "fail", found, "no further process may use it: `CUDA-capable device(s) is/are busy`",
                      f"{remedy}; sudo nvidia-smi -i {gpu.index} -c DEFAULT")  # fmt: skip
    elif gpu.total and (who or gpu.used > _OWN):
        found = f"GPU {gpu.index}: {gpu.used} of {gpu.total} MiB used, {gpu.busy} % busy, by {others}"
        why = "what they hold is missing for the micro-batch, and what they compute slows all processes of the run"
        yield Finding("gpus", "warn", found, why, remedy)
    if gpu.broken:
        found = f"GPU {gpu.index}: {gpu.broken} errors of its memory that could not be corrected"
        yield Finding("gpus", "fail", found,
                      "it computes wrong figures or ends the run (`uncorrectable ECC error`)",
                      f"sudo nvidia-smi -r -i {gpu.index}; if they come back, have it replaced")  # fmt: skip
    if gpu.mig:
        yield Finding("gpus", "warn", f"GPU {gpu.index} is split into parts (MIG)",
                      "a process sees one part alone, and NCCL does not connect parts of one GPU",
                      f"sudo nvidia-smi -i {gpu.index} -mig 0  # or train with one process")  # fmt: skip


def _visible(driver: Driver, environ: Mapping[str, str]) -> list[Gpu]:
    """Those that CUDA shows, in the order of the variable; all where it is not set. Of parts it shows the first alone.

    Raises:
        ValueError: it names one that is not there.
    """
    given = environ.get("CUDA_VISIBLE_DEVICES")
    if given is None:
        return list(driver.gpus)
    seen: list[Gpu] = []
    for word in filter(None, (word.strip() for word in given.split(","))):
        if word == "-1":
            break
        if word.startswith("MIG-"):
            return [_part(driver, word)]
        fitting = [gpu for gpu in driver.gpus if str(gpu.index) == word or gpu.uuid.startswith(word)]
        if driver.gpus and not fitting:
            there = ", ".join(str(gpu.index) for gpu in driver.gpus)
            raise ValueError(f"CUDA_VISIBLE_DEVICES={given}: there is no GPU {word}, only {there}")
        seen += fitting[:1]
    return seen


def _part(driver: Driver, uuid: str) -> Gpu:
    """A part as a GPU whose memory is not known.

    Raises:
        ValueError: it is not there.
    """
    for part in driver.parts:
        if part.uuid.startswith(uuid):
            whole = next(gpu for gpu in driver.gpus if gpu.index == part.gpu)
            return whole._replace(
                uuid=part.uuid, name=f"{whole.name} (its part {part.profile})", total=0, used=0, mig=False
            )
    there = ", ".join(part.uuid for part in driver.parts) or "none"
    raise ValueError(f"CUDA_VISIBLE_DEVICES={uuid}: there is no such part of a GPU; nvidia-smi -L names {there}")
