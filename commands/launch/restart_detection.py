"""Detects restarts by the launcher, and connects the ranks of each start under a key prefix of that start."""

import atexit
import uuid
from collections.abc import MutableMapping

import torch
from lightning.pytorch.strategies import Strategy

from commands.launch.launched_processes import rendezvous_from_env
from commands.launch.rank_zero_decision import decide_on_rank_zero
from commands.launch.rendezvous_store import RendezvousStore
from engine.lightning_internals.processes import strategy_timeout


def is_restart(environ: MutableMapping[str, str]) -> bool:
    """Return whether the launcher has started this run before. To be called on rank 0, once per start.

    torchrun's restart count omits restarts for nodes that join or leave, so starts are counted in its agent's store.
    """
    if any(int(environ.get(name, "0")) > 0 for name in ("TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT")):
        return True
    rendezvous = rendezvous_from_env(environ)
    if rendezvous is None or not rendezvous.store_outlives_ranks:
        return False
    return RendezvousStore(rendezvous).store.add("lockstep/starts", 1) > 1


def restart_prefix(environ: MutableMapping[str, str]) -> str | None:
    """Return a prefix for the keys of this start of the ranks; None where the store does not outlive them.

    The store of torchrun's agent outlives the ranks. Without the prefix, restarted ranks find the addresses of
    the dead ranks in it and cannot connect.
    """
    rendezvous = rendezvous_from_env(environ)
    if rendezvous is None or not rendezvous.store_outlives_ranks or rendezvous.processes == 1:
        return None
    return decide_on_rank_zero("start", lambda: uuid.uuid4().hex, environ)


def connect_with_prefix(strategy: Strategy, prefix: str, environ: MutableMapping[str, str]) -> None:
    """Initialize the default process group with the launcher's store under `prefix`.

    Lightning uses a process group that exists already. Lightning's own call has no argument for a store.

    Args:
        strategy: of the trainer; determines device, backend and time limit as Lightning does.
        prefix: from `restart_prefix`.
        environ: variables of the launcher.
    """
    rendezvous = rendezvous_from_env(environ)
    assert rendezvous is not None, "there is a prefix"
    device, timeout = strategy.root_device, strategy_timeout(strategy)
    backends = torch.distributed.Backend.default_device_backend_map
    backend = getattr(strategy, "process_group_backend", None) or backends.get(device.type, "gloo")
    assert strategy.accelerator is not None, "the trainer sets it"
    strategy.accelerator.setup_device(device)
    store = RendezvousStore(rendezvous).store
    # It was opened with the time limit of decisions.
    store.set_timeout(timeout)
    torch.distributed.init_process_group(
        backend,
        store=torch.distributed.PrefixStore(prefix, store),
        rank=rendezvous.rank,
        world_size=rendezvous.processes,
        timeout=timeout,
        device_id=None if device.type == "cpu" else device,
    )
    if "nccl" in backend:
        atexit.register(torch.distributed.destroy_process_group)  # NCCL warns about a group that is left
