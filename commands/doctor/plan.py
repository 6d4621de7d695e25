"""What is to be started: how many processes on how many nodes, as far as config, command line and launcher say."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from engine.cores import workers_for

WITHOUT_CUDA = ("cpu", "mps", "tpu")
"""Values of `trainer.accelerator` with which NVIDIA's GPUs are not used."""


class Plan(NamedTuple):
    """Each None where nothing has been said."""

    devices: int | None = None
    """Processes on a node."""
    nodes: int | None = None
    accelerator: str | None = None
    workers: int | str | None = None
    """Loader processes of each training process; a word where the number is chosen when the training starts."""

    def processes(self, otherwise: int = 1) -> int:
        """On a node."""
        return self.devices or otherwise

    def loaders(self) -> int:
        """Loader processes of each training process, as far as they are known."""
        return self.workers if isinstance(self.workers, int) else 0

    def on(self, gpus: int, cores: float, threads: Callable[[int], int]) -> "Plan":
        """The same where what is left open is chosen as it will be at the start: a process for each GPU, and loaders.

        Args:
            gpus: that CUDA shows here.
            cores: that all processes of this node may use together.
            threads: with which each of so many processes computes.
        """
        gpus = 0 if self.accelerator in WITHOUT_CUDA else gpus
        devices = self.devices or gpus or None
        workers = self.workers
        if workers == "auto":
            computing = 1 if gpus else threads(devices or 1)
            workers = workers_for(cores, devices or 1, computing)
        return self._replace(devices=devices, workers=workers)


def planned(arguments: Sequence[str], environ: Mapping[str, str]) -> Plan:
    """The plan of a command line as `--config FILE --config OVERLAY --trainer.devices 4`, under a launcher or without.

    A config is only looked into here, in the order in which it counts: the machine is to be examined even where the
    config does not parse, which another check tells. The launcher speaks where the config leaves it open.
    """
    settings: dict[str, Any] = {}
    for file in _values(arguments, "--config") + _values(arguments, "-c"):
        try:
            settings = _over(settings, yaml.safe_load(Path(file).read_text(encoding="utf-8")) or {})
        except (OSError, UnicodeDecodeError, yaml.YAMLError):
            continue
    data = _mapping(settings.get("data"))
    trainer = _mapping(settings.get("trainer")) | {
        key: yaml.safe_load(given[-1])
        for key in ("devices", "num_nodes", "accelerator")
        if (given := _values(arguments, f"--trainer.{key}"))
    }
    workers = _mapping(data.get("init_args")).get("num_workers", data.get("num_workers"))
    for key in ("--data.init_args.num_workers", "--data.num_workers"):
        workers = next(iter(map(yaml.safe_load, reversed(_values(arguments, key)))), workers)
    devices, nodes = _count(trainer.get("devices")), _count(trainer.get("num_nodes"))
    return Plan(
        devices or _launched_on_node(environ),
        nodes if nodes and nodes > 1 else _launched_nodes(environ) or nodes,
        trainer.get("accelerator"),
        workers,
    )


def is_first(environ: Mapping[str, str]) -> bool:
    """Whether this is the first process of all that a launcher has started, or was started alone."""
    return (environ.get("RANK") or environ.get("SLURM_PROCID") or "0") == "0"


def _count(devices: Any) -> int | None:
    """2, "2", [0, 1] and "0,1" are two devices; "auto" and -1 say nothing."""
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and "," in devices:
        return len(devices.strip(",").split(","))
    text = str(devices)
    return int(text) if text.isdigit() and int(text) > 0 else None


def _launched_on_node(environ: Mapping[str, str]) -> int | None:
    given = environ.get("LOCAL_WORLD_SIZE") or environ.get("SLURM_NTASKS_PER_NODE", "")
    tasks, nodes = environ.get("SLURM_NTASKS", ""), environ.get("SLURM_NNODES", "1")
    if not given and tasks.isdigit() and nodes.isdigit() and int(tasks) % int(nodes) == 0:
        given = str(int(tasks) // int(nodes))
    if not given and "RANK" in environ:  # Kubernetes' PyTorchJob: one process a pod, and no LOCAL_RANK
        given = environ.get("WORLD_SIZE", "") if "LOCAL_RANK" in environ else "1"
    return int(given) if given.isdigit() else None


def _launched_nodes(environ: Mapping[str, str]) -> int | None:
    here, all_of_them = environ.get("LOCAL_WORLD_SIZE", ""), environ.get("WORLD_SIZE", "")
    if here.isdigit() and all_of_them.isdigit() and int(here):
        return max(1, int(all_of_them) // int(here))
    nodes = environ.get("SLURM_NNODES", "")
    return int(nodes) if nodes.isdigit() else None


def _over(below: dict[str, Any], above: Any) -> dict[str, Any]:
    """A config laid over another."""
    if not isinstance(above, Mapping):
        return below
    return below | {
        key: _over(_mapping(below.get(key)), value) if isinstance(value, Mapping) else value
        for key, value in above.items()
    }


def _mapping(value: Any) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _values(arguments: Sequence[str], option: str) -> list[str]:
    following = [value for key, value in zip(arguments, arguments[1:], strict=False) if key == option]
    return following + [word.removeprefix(option + "=") for word in arguments if word.startswith(option + "=")]
