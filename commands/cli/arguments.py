"""Defines the options of the command line besides Lightning's own, and the messages for wrong options."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NoReturn

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from callbacks.checkpointing.best_checkpoint import BestCheckpoint
from callbacks.checkpointing.last_checkpoint import LastCheckpoint
from callbacks.guards.finite_guard import FiniteGuard
from callbacks.guards.replica_consistency import ReplicaConsistencyCheck
from callbacks.guards.unused_parameters import UnusedParameterCheck
from callbacks.health.preemption import Preemption
from callbacks.health.watchdog import Watchdog
from callbacks.logging.sample_previews import SamplePreviewLogger
from callbacks.performance.ddp_options import DDPOptions
from callbacks.performance.stragglers import Stragglers
from callbacks.performance.throughput import Throughput
from callbacks.prometheus.exporter import PrometheusExporter
from callbacks.trackers.tracker_registry import TRACKERS
from commands.cli.configs.config_files import ConfigFile, check_config, locate
from commands.cli.configs.misread_numbers import ambiguous_options, ambiguous_texts, find_misread
from commands.cli.configs.parser_message import nearest, parse_error, shorten
from commands.cli.console_logging import LogSettings
from commands.cli.shipped_configs import closest_configs
from commands.cli.threads_option import HELP as THREADS_HELP
from commands.cli.threads_option import THREADS_TYPE
from commands.launch.command_line import CONFIG_OPTIONS, values_of
from commands.runs.current_names import current_key
from commands.runs.run_directory import newest_config
from commands.runs.run_names import changes_a_config, check_run_name
from commands.runs.runs_option import HELP as RUNS_HELP
from commands.runs.runs_option import OPTION
from engine.checkpointing.checkpoint_io import VerifiedCheckpointIO
from engine.lightning_internals.cli import option_names

EVALUATIONS = ("validate", "test", "predict")

TRAINED_RUN_COMMANDS = (*EVALUATIONS, "export", "demo", "chat")
"""Commands that start from the best checkpoint of a run."""

DebugLevel = Literal["OFF", "INFO", "DETAIL"]


class LockstepParser(LightningArgumentParser):
    """Parser whose errors are one line: the key, what was found, what was expected, and the file and line of it.

    Null is refused where the type of a parameter does not have it. jsonargparse takes null for a value that was not
    given, which fails later, in the code that uses it. A number that YAML 1.1 makes of a text such as `1:30` is
    refused, too.
    """

    _reading: ConfigFile | None = None
    """Config file that is being parsed."""

    @override
    def parse_args(  # type: ignore[override]  # as in jsonargparse; argparse has overloads
        self, args: Sequence[str] | None = None, *rest: Any, **kwargs: Any
    ) -> Namespace:
        config: Namespace = super().parse_args(args, *rest, **kwargs)
        self._refuse_misread(ambiguous_options(self.args), config)
        return config

    @override
    def parse_path(self, path: str | os.PathLike[str], *args: Any, **kwargs: Any) -> Namespace:
        tree = check_config(Path(path))
        self._reading = ConfigFile(Path(path), tree)
        try:
            config = super().parse_path(path, *args, **kwargs)
            self._refuse_misread(ambiguous_texts(tree) if tree else {}, config)
            return config
        finally:
            self._reading = None

    @override
    def validate(self, namespace: Namespace, skip_unset: bool = True, **kwargs: Any) -> None:
        try:
            # By default jsonargparse takes null for a value that was not given, and does not check it.
            super().validate(namespace, skip_unset=False, **kwargs)
        except (TypeError, KeyError):
            kwargs.pop("_prefix", None)  # of a command; with it, jsonargparse leaves missing keys to the caller
            super().validate(namespace, skip_unset=skip_unset, **kwargs)  # a missing key has a message of its own
            raise

    @override
    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        parser = getattr(ex, "subcommand_parser", None) or self
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        if unknown:
            message += nearest(unknown.group(1), option_names(parser))
        if message.startswith("the following arguments are required: ") and "." in message:
            message += "; a config gives them: --config configs/FAMILY/X.yaml"
        if self.exit_on_error:  # else the caller needs the keys
            message = self._one_line_message(message, option_names(parser))
        super().error(message, ex)

    def _refuse_misread(self, texts: Mapping[str, str], config: Namespace) -> None:
        misread = find_misread(texts, config)
        if misread is not None:
            self.error(f'Parser key "{misread[0]}": {misread[1]}')

    def _one_line_message(self, message: str, options: list[str]) -> str:
        keys, reason = parse_error(message)
        if not keys:
            return shorten(reason if self._reading is None else f"{self._reading.path}: {reason}")
        where, key = locate(keys, getattr(self, "args", []), self._reading)
        current = current_key(".".join(keys))
        if reason.startswith(("there is no such setting", "unrecognized arguments")) and current != ".".join(keys):
            reason = f"there is no such setting; it is now {current}"
        elif reason == "there is no such setting":
            reason += nearest("--" + key.removeprefix("--"), options)
        absent = re.match(r"File does not exist: '(.+)'", reason)
        if absent and keys == ["config"] and (similar := closest_configs(Path(absent[1]))):
            reason += f"; did you mean {' or '.join(similar)}?"
        if re.search(r"\bstr\b.*found (True|False)$", reason):
            reason += "; YAML reads yes, no, on and off as booleans: quote a text"
        return shorten(f"{where}{key}: {reason}")


def add_own_options(parser: LightningArgumentParser) -> None:
    """Add the options of the run and of the callbacks of every run; Lightning creates the callbacks."""
    parser.add_argument(
        "--run_name",
        type=str | None,
        help="The run directory is NAME in that of --runs. Default of fit: family, configs (without overlays) and "
        "time; of an evaluation: the newest run of the same configs.",
    )
    parser.add_argument(OPTION, type=str | None, metavar="DIR", help=RUNS_HELP)
    parser.add_argument("--threads", type=THREADS_TYPE, default="auto", help=THREADS_HELP)
    deprecated = "Deprecated, removed in 0.3.0: set the variable TORCH_DISTRIBUTED_DEBUG instead."
    parser.add_argument("--distributed_debug", type=DebugLevel | None, help=deprecated)
    parser.add_class_arguments(LogSettings, "log")
    parser.add_lightning_class_args(BestCheckpoint, "best_checkpoint")
    parser.add_lightning_class_args(LastCheckpoint, "last_checkpoint")
    parser.add_class_arguments(VerifiedCheckpointIO, "checkpoints")
    for tracker, settings in TRACKERS.items():
        parser.add_class_arguments(settings, tracker.KEY)
    parser.add_lightning_class_args(SamplePreviewLogger, "sample_previews")
    parser.add_lightning_class_args(Watchdog, "watchdog")
    parser.add_lightning_class_args(PrometheusExporter, "prometheus")
    parser.add_lightning_class_args(Throughput, "throughput")
    parser.add_lightning_class_args(Stragglers, "stragglers")
    parser.add_lightning_class_args(FiniteGuard, "finite_guard")
    parser.add_lightning_class_args(DDPOptions, "ddp")
    parser.add_lightning_class_args(UnusedParameterCheck, "unused_parameters")
    parser.add_lightning_class_args(ReplicaConsistencyCheck, "replica_consistency")
    parser.add_lightning_class_args(Preemption, "preemption")


def add_command_options(parser: LightningArgumentParser, command: str) -> None:
    """Add the options of one command, and its default values where they differ from Lightning's."""
    if command == "export":
        text = "merge the adapters of a language model into its weights"
        parser.add_argument("--merge", action="store_true", help=text)
    if command in TRAINED_RUN_COMMANDS:
        parser.set_defaults(ckpt_path="best")
    if command in ("validate", "test"):
        parser.set_defaults(verbose=False)  # ResultsTable prints the metrics
    if command == "predict":
        parser.set_defaults(return_predictions=False)  # PredictionWriter writes them


def refuse_lone_values(parser: LightningArgumentParser, config: Namespace) -> None:
    """End with a parser error if a group is a plain value, as in `trainer: 5`, which jsonargparse accepts."""
    for group in parser.groups or {}:
        value = config.get(group, Namespace())
        absent = value is None and group in ("model", "data")  # optional for some commands
        if not isinstance(value, Namespace) and not absent:
            parser.error(f'Parser key "{group}": expected settings, KEY: VALUE; found {value!r}')


def add_run_config(arguments: list[str], runs: Path) -> list[str]:
    """Add the config of the run to a command line with `--run_name` and without a config of a training.

    Overlays and ablation configs are laid over the config of the run.

    Raises:
        FileNotFoundError: an evaluation, or a `fit` with `--ckpt_path last`, names a run that does not exist, and no
            config.
    """
    configs = values_of(arguments, *CONFIG_OPTIONS)
    names = values_of(arguments, "--run_name")
    if names:
        check_run_name(names[-1])
    run_config = newest_config(runs / names[-1]) if names else None
    # A command line that gives the model itself, or asks for help, needs no run.
    complete = configs or any(argument.startswith(("--model", "--help", "-h")) for argument in arguments)
    continues = values_of(arguments, "--ckpt_path")[-1:] == ["last"]
    if run_config is None and names and not complete and (continues or arguments[0] in TRAINED_RUN_COMMANDS):
        raise no_config_error(names[-1], runs)
    if run_config is None or not all(changes_a_config(Path(config)) for config in configs):
        return arguments
    return [arguments[0], "--config", str(run_config), *arguments[1:]]


def no_config_error(name: str, runs: Path) -> FileNotFoundError:
    """Return the error that a run has no config. It lists the runs that have a config."""
    existing = ", ".join(sorted(path.parent.name for path in runs.glob("*/config.yaml"))) or "none"
    return FileNotFoundError(f"{runs / name} is not a run with a config.yaml; existing runs: {existing}")
