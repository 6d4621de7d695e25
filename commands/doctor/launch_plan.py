"""Determines the ranks, nodes and loader workers from a command line, its configs and the launcher."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from commands.launch.command_line import CONFIG_OPTIONS, values_of
from commands.launch.launcher_variables import LauncherVariables
from engine.io.yaml_file import YamlFileError, parse_yaml, read_yaml
from engine.system.cpu_count import num_loader_workers

WITHOUT_CUDA = ("cpu", "mps", "tpu")
"""Values of `trainer.accelerator` with which NVIDIA's GPUs are not used."""


class LaunchPlan(NamedTuple):
    """Numbers of a training that is to be started; None where nothing states them."""

    devices: int | None = None
    """Ranks on a node."""
    nodes: int | None = None
    accelerator: str | None = None
    workers: int | str | None = None
    """Loader workers of each rank; `auto` if the training chooses them."""
    threads: int | None = None
    """Threads of each rank by `--threads`; None: the training chooses, or a variable states them."""

    def processes(self, default: int = 1) -> int:
        """Return the number of ranks on a node."""
        return self.devices or default

    def loaders(self) -> int:
        """Return the number of loader workers of each rank; 0 if it is not known."""
        return self.workers if isinstance(self.workers, int) else 0

    def resolve(self, gpus: int, cores: float, threads: Callable[[int], int]) -> "LaunchPlan":
        """Return the plan with the numbers that the training chooses on this machine.

        Args:
            gpus: GPUs that CUDA shows, each of which gets a rank.
            cores: cores that all ranks of this node share.
            threads: returns the threads of each rank, for a number of ranks.
        """
        gpus = 0 if self.accelerator in WITHOUT_CUDA else gpus
        devices = self.devices or gpus or None
        workers = self.workers
        if workers == "auto":
            computing = 1 if gpus else self.threads or threads(devices or 1)
            workers = num_loader_workers(cores, devices or 1, computing)
        return self._replace(devices=devices, workers=workers)


def plan_launch(arguments: Sequence[str], environ: Mapping[str, str]) -> LaunchPlan:
    """Return the plan of a command line, with or without a launcher.

    Only the keys of the plan are read: the machine is checked even if the config does not parse, which another check
    reports. The launcher's variables count where the config is silent.

    Args:
        arguments: as `--config FILE --config OVERLAY --trainer.devices 4`.
        environ: environment variables.
    """
    settings: dict[str, Any] = {}
    for file in values_of(arguments, *CONFIG_OPTIONS):
        try:
            settings = _merge(settings, read_yaml(Path(file)) or {})
        except (OSError, YamlFileError):
            continue
    data = _mapping(settings.get("data"))
    trainer = _mapping(settings.get("trainer")) | {
        key: _scalar(values[-1])
        for key in ("devices", "num_nodes", "accelerator")
        if (values := values_of(arguments, f"--trainer.{key}"))
    }
    workers = _mapping(data.get("init_args")).get("num_workers", data.get("num_workers"))
    for key in ("--data.init_args.num_workers", "--data.num_workers"):
        workers = next(iter(map(_scalar, reversed(values_of(arguments, key)))), workers)
    threads = settings.get("threads")
    threads = next(iter(map(_scalar, reversed(values_of(arguments, "--threads")))), threads)
    launcher = LauncherVariables.read(environ)
    devices, nodes = _count_devices(trainer.get("devices")), _count_devices(trainer.get("num_nodes"))
    return LaunchPlan(
        devices or launcher.ranks_per_node(),
        # 1 is the default of the config, so the launcher's number counts.
        nodes if nodes and nodes > 1 else launcher.nodes() or nodes,
        trainer.get("accelerator"),
        workers,
        threads if isinstance(threads, int) and threads > 0 else None,
    )


def _count_devices(devices: object) -> int | None:
    """Return the number of devices: 2 for 2, "2", [0, 1] and "0,1"; None for "auto" and -1."""
    if isinstance(devices, list):
        return len(devices)
    if isinstance(devices, str) and "," in devices:
        return len(devices.strip(",").split(","))
    text = str(devices)
    return int(text) if text.isdigit() and int(text) > 0 else None


def _merge(base: dict[str, Any], overlay: object) -> dict[str, Any]:
    """Return a config with an overlay merged into it."""
    if not isinstance(overlay, Mapping):
        return base
    return base | {
        key: _merge(_mapping(base.get(key)), value) if isinstance(value, Mapping) else value
        for key, value in overlay.items()
    }


def _mapping(value: object) -> dict[str, Any]:
    return dict(value) if isinstance(value, Mapping) else {}


def _scalar(text: str) -> Any:
    """Return the value of an option; None if it is no YAML, which the check of the config reports."""
    try:
        return parse_yaml(text, "option")
    except YamlFileError:
        return None
