"""Checks for environment variables that are outdated, harmful, misspelt or without effect.

Sources: NCCL's user guide, chapter Environment Variables (the versions are its own); ProcessGroupNCCL.hpp and
AllocatorConfig.h of PyTorch 2.13.
"""

import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from commands.doctor.check import Finding, Status

CHECK = "variables"


class Rule(NamedTuple):
    """A variable, a predicate on its values, and the finding for matching values."""

    name: str
    why: str
    remedy: str = ""
    """Empty: unset the variable."""
    applies: Callable[[str], bool] = lambda value: True
    status: Status = "warn"


def _on(value: str) -> bool:
    return value.strip().lower() not in ("", "0", "false", "n", "no", "off")


def _off(value: str) -> bool:
    return value.strip() == "0"


_RENAMED = "PyTorch has renamed it; the old name still works, with a warning at every start, and will be removed"
_NO_OVERLAP = "every wait for NCCL blocks the process, so that computation and communication no longer overlap"
_DEBUGGING = "NCCL's guide has it for debugging only: otherwise it costs speed, or leads to crashes and hangs"

RULES = (
    Rule("NCCL_MIN_NRINGS", "called NCCL_MIN_NCHANNELS since NCCL 2.5, and that is deprecated since 2.17: NCCL chooses "
         "better, and each channel occupies a part of the GPU",
         "unset NCCL_MIN_NRINGS  # or NCCL_MIN_CTAS"),
    Rule("NCCL_MAX_NRINGS", "called NCCL_MAX_NCHANNELS since NCCL 2.5, and that is deprecated since 2.17",
         "unset NCCL_MAX_NRINGS  # or NCCL_MAX_CTAS"),
    Rule("NCCL_MIN_NCHANNELS", "deprecated since NCCL 2.17", "unset NCCL_MIN_NCHANNELS  # or NCCL_MIN_CTAS"),
    Rule("NCCL_MAX_NCHANNELS", "deprecated since NCCL 2.17", "unset NCCL_MAX_NCHANNELS  # or NCCL_MAX_CTAS"),
    Rule("NCCL_TREE_THRESHOLD", "removed in NCCL 2.5: it has no effect"),
    Rule("NCCL_LL_THRESHOLD", "removed in NCCL 2.5: it has no effect"),
    Rule("NCCL_SINGLE_RING_THRESHOLD", "removed in NCCL 2.3: it has no effect"),
    Rule("NCCL_IB_CUDA_SUPPORT", "removed in NCCL 2.4: it has no effect", "unset NCCL_IB_CUDA_SUPPORT  # or "
         "NCCL_NET_GDR_LEVEL"),
    Rule("NCCL_IB_GDR_LEVEL", "called NCCL_NET_GDR_LEVEL since NCCL 2.4", "unset NCCL_IB_GDR_LEVEL"),
    Rule("NCCL_CHECKS_DISABLE", "deprecated since NCCL 2.2.12: checks are off unless NCCL_CHECK_MODE enables them"),
    Rule("NCCL_CHECK_POINTERS", "checks every pointer of every collective, which adds latency", applies=_on),
    Rule("NCCL_LAUNCH_MODE", "deprecated since NCCL 2.9"),
    Rule("NCCL_BLOCKING_WAIT", f"{_RENAMED}; {_NO_OVERLAP}; hangs are found by --watchdog.timeout without it",
         applies=_on),
    Rule("TORCH_NCCL_BLOCKING_WAIT", f"{_NO_OVERLAP}; hangs are found by --watchdog.timeout without it", applies=_on),
    Rule("NCCL_ASYNC_ERROR_HANDLING", f"{_RENAMED}; its default is correct", applies=_on),
    Rule("NCCL_ASYNC_ERROR_HANDLING", "after an error of NCCL all ranks wait indefinitely",
         applies=_off, status="fail"),
    Rule("TORCH_NCCL_ASYNC_ERROR_HANDLING", "after an error of NCCL all ranks wait indefinitely",
         applies=_off, status="fail"),
    Rule("TORCH_NCCL_ENABLE_MONITORING", "a rank whose NCCL watchdog itself hangs is never ended", applies=_off),
    Rule("NCCL_DESYNC_DEBUG", _RENAMED, "export TORCH_NCCL_DESYNC_DEBUG=1; unset NCCL_DESYNC_DEBUG", _on),
    Rule("NCCL_ENABLE_TIMING", _RENAMED, "unset NCCL_ENABLE_TIMING", _on),
    Rule("NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", _RENAMED, applies=_on),
    Rule("NCCL_P2P_DISABLE", "GPUs of one machine then communicate through its memory instead of NVLink or PCIe; "
         + _DEBUGGING, applies=_on),
    Rule("NCCL_SHM_DISABLE", "ranks of one machine then communicate over the network; " + _DEBUGGING, applies=_on),
    Rule("NCCL_PROTO", "NCCL chooses better; LL128 corrupts data where it is not supported"),
    Rule("NCCL_ALGO", "since NCCL 2.24 a collective fails if none of the named algorithms supports it; "
         + _DEBUGGING),
    Rule("NCCL_IB_TIMEOUT", "0 and 32 or more disable the timeout: a lost node is never noticed", "export "
         "NCCL_IB_TIMEOUT=20", lambda value: value.isdigit() and not 0 < int(value) < 32, "fail"),
    Rule("NCCL_DEBUG", "every process logs what NCCL does: useful for a day, too much for a run of weeks",
         "export NCCL_DEBUG=WARN", lambda value: value.upper() in ("INFO", "TRACE")),
    Rule("CUDA_LAUNCH_BLOCKING", "the CPU waits for every kernel: training is several times slower", applies=_on),
    Rule("TORCH_DISTRIBUTED_DEBUG", "before every collective another collective compares it, which is slow; "
         "with DDP over gloo (CPUs) PyTorch 2.13 ends with a segmentation fault",
         "unset TORCH_DISTRIBUTED_DEBUG  # or INFO", lambda value: value.upper() == "DETAIL"),
    Rule("TORCH_DISTRIBUTED_DEBUG", "PyTorch refuses to start with a value that is not OFF, INFO or DETAIL", "export "
         "TORCH_DISTRIBUTED_DEBUG=INFO", lambda value: value.upper() not in ("OFF", "INFO", "DETAIL"), "fail"),
    Rule("CUDA_DEVICE_MAX_CONNECTIONS", "1 is for Megatron's tensor parallelism: here it keeps communication from "
         "overlapping with computing", applies=lambda value: value == "1"),
)  # fmt: skip

_ALLOCATOR_KEYS = {
    "backend", "max_split_size_mb", "max_non_split_rounding_mb", "garbage_collection_threshold",
    "roundup_power2_divisions", "expandable_segments", "pinned_use_background_threads", "release_lock_on_cudamalloc",
    "pinned_use_cuda_host_register", "release_lock_on_hipmalloc", "pinned_use_hip_host_register",
    "graph_capture_record_stream_reuse", "pinned_reserve_segment_size_mb", "pinned_num_register_threads",
    "per_process_memory_fraction", "pinned_free_catch_all", "throw_on_cudamalloc_oom", "large_segment_size_mb",
    "pinned_max_round_threshold_mb", "pinned_max_cached_size_mb",
}  # fmt: skip
_ALLOCATOR = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_OFTEN_MISSPELT = (
    *_ALLOCATOR, "NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "CUDA_VISIBLE_DEVICES", "OMP_NUM_THREADS", "MASTER_ADDR",
    "MASTER_PORT", "WORLD_SIZE", "LOCAL_RANK", "TORCH_DISTRIBUTED_DEBUG", "NCCL_DEBUG", "NCCL_IB_DISABLE",
    "NCCL_P2P_DISABLE",
)  # fmt: skip
_NEARLY = 0.86
"""Similarity of names (0 to 1) above which a name is a misspelling: MASTER_ADDRESS is, NCCL_DEBUG_FILE is not."""


def check_variables(environ: Mapping[str, str], infiniband: bool = False) -> Iterator[Finding]:
    """Yield a finding for each harmful variable; without any, yield `ok`.

    Args:
        environ: environment variables.
        infiniband: whether this machine has InfiniBand or RoCE adapters.
    """
    findings = [
        *_check_rules(environ),
        *_disabled_infiniband(environ, infiniband),
        *_too_many_sockets(environ),
        *_allocator(environ),
        *_misspelt(environ),
    ]
    yield from findings or [Finding(CHECK, "ok", "none is set that is outdated, harmful or misspelt")]


def _check_rules(environ: Mapping[str, str]) -> Iterator[Finding]:
    for rule in RULES:
        value = environ.get(rule.name, "")
        if value and rule.applies(value):
            remedy = rule.remedy or f"unset {rule.name}"
            yield Finding(CHECK, rule.status, f"{rule.name}={value}", rule.why, remedy)
    if environ.get("NCCL_DEBUG_SUBSYS") and not environ.get("NCCL_DEBUG"):
        yield Finding(CHECK, "warn", f"NCCL_DEBUG_SUBSYS={environ['NCCL_DEBUG_SUBSYS']} without NCCL_DEBUG",
                      "it filters what NCCL_DEBUG=INFO prints, and has no effect alone",
                      "export NCCL_DEBUG=INFO  # or unset NCCL_DEBUG_SUBSYS")  # fmt: skip


def _disabled_infiniband(environ: Mapping[str, str], infiniband: bool) -> Iterator[Finding]:
    for name, applies in (("NCCL_IB_DISABLE", _on), ("NCCL_NET", lambda value: value.lower() == "socket")):
        value = environ.get(name, "")
        if value and applies(value):
            state = "InfiniBand or RoCE, which this machine has, is not used" if infiniband else "no InfiniBand here"
            why = f"{state}; nodes communicate over TCP, often a tenth as fast. {_DEBUGGING}"
            yield Finding(CHECK, "warn", f"{name}={value}", why, f"unset {name}")


def _too_many_sockets(environ: Mapping[str, str]) -> Iterator[Finding]:
    names = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD")
    counts = {name: int(environ[name]) for name in names if environ.get(name, "").isdigit()}
    if len(counts) == 2 and counts[names[0]] * counts[names[1]] > 64:
        found = " x ".join(f"{name}={value}" for name, value in counts.items())
        yield Finding(CHECK, "fail", found, "their product may not exceed 64", f"unset {' '.join(names)}")


def _allocator(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name in _ALLOCATOR:
        for key in _keys(environ.get(name, "")):
            if key in _ALLOCATOR_KEYS:
                continue
            nearest = difflib.get_close_matches(key, _ALLOCATOR_KEYS, n=1)
            closest = nearest[0] if nearest else "expandable_segments"
            why = "PyTorch has no such option: the first use of a GPU fails, or the option has no effect"
            yield Finding(
                CHECK, "fail", f"{name}: {key!r}", why, f"export {name}={environ[name].replace(key, closest)}"
            )
    both = [name for name in _ALLOCATOR[:2] if environ.get(name)]
    if len(both) == 2 and environ[both[0]] != environ[both[1]]:
        found = " and ".join(f"{name}={environ[name]}" for name in both)
        yield Finding(CHECK, "warn", found, f"they differ, and {both[0]} takes precedence", f"unset {both[0]}")


def _keys(options: str) -> list[str]:
    """Return the keys: a, b and c of `a:1,b:[256:1,512:2],c:True`."""
    depth, outside = 0, []
    for letter in options:
        depth += (letter == "[") - (letter == "]")
        outside.append(letter if depth == 0 else "")
    return [part.partition(":")[0].strip() for part in "".join(outside).split(",") if part.strip()]


def _misspelt(environ: Mapping[str, str]) -> Iterator[Finding]:
    known_names = {*_OFTEN_MISSPELT, *(rule.name for rule in RULES)}
    for name in sorted(set(environ) - known_names):
        nearest = difflib.get_close_matches(name, set(_OFTEN_MISSPELT) - set(environ), n=1, cutoff=_NEARLY)
        if nearest:
            yield Finding(CHECK, "warn", f"{name}={environ[name]}: no program reads it; {nearest[0]} is not set",
                          "it is probably misspelt, and has no effect",
                          f"export {nearest[0]}={environ[name]}; unset {name}")  # fmt: skip
