"""What can be said on the command line beside Lightning's own options, and what is said about it when it is wrong."""

import difflib
import re
from pathlib import Path
from typing import NoReturn

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser

from callbacks.best_checkpoint import BestCheckpoint
from callbacks.example_log import ExampleLog
from callbacks.finite_guard import FiniteGuard
from callbacks.gradient_coverage import GradientCoverage
from callbacks.gradient_exchange import GradientExchange
from callbacks.last_checkpoint import LastCheckpoint
from callbacks.metrics_endpoint import MetricsEndpoint
from callbacks.mlflow_record import MLflowSettings
from callbacks.preemption import Preemption
from callbacks.replica_parity import ReplicaParity
from callbacks.stragglers import Stragglers
from callbacks.throughput import Throughput
from callbacks.watchdog import Watchdog
from callbacks.weights_and_biases import WandbSettings
from commands.console import LogSettings
from commands.distributed_debug import HELP, Level
from commands.run_folder import RUNS, newest_config
from engine.checkpoints import DurableCheckpointIO

EVALUATIONS = ("validate", "test", "predict")


class LockstepParser(LightningArgumentParser):
    """Says what is wrong with the command line without first listing all that could have been right."""

    def error(self, message: str, ex: Exception | None = None) -> NoReturn:
        parser = getattr(ex, "subcommand_parser", None) or self
        unknown = re.match(r"unrecognized arguments: (--[^\s=]+)", message)
        if unknown:
            nearest = difflib.get_close_matches(unknown.group(1), parser._option_string_actions, n=1)
            message += f"; did you mean {nearest[0]}?" if nearest else ""
        if message.startswith("the following arguments are required: ") and "." in message:
            message += "; a config gives them: --config configs/FAMILY/X.yaml"
        super().error(message, ex)


def add_own_options(parser: LightningArgumentParser) -> None:
    """The run's name, how checkpoints are kept, and the guards (Lightning adds their callbacks to the Trainer)."""
    parser.add_argument(
        "--run_name",
        type=str | None,
        help=f"The run's folder is {RUNS}/NAME. Default: family, configs (but overlays) and time when "
        "fitting, the newest run of the same configs when evaluating.",
    )
    parser.add_argument("--distributed_debug", type=Level | None, help=HELP)
    parser.add_class_arguments(LogSettings, "log")
    parser.add_lightning_class_args(BestCheckpoint, "best_checkpoint")
    parser.add_lightning_class_args(LastCheckpoint, "last_checkpoint")
    parser.add_class_arguments(DurableCheckpointIO, "checkpoints")
    parser.add_class_arguments(WandbSettings, "wandb")
    parser.add_class_arguments(MLflowSettings, "mlflow")
    parser.add_lightning_class_args(ExampleLog, "example_log")
    parser.add_lightning_class_args(Watchdog, "watchdog")
    parser.add_lightning_class_args(MetricsEndpoint, "metrics_endpoint")
    parser.add_lightning_class_args(Throughput, "throughput")
    parser.add_lightning_class_args(Stragglers, "stragglers")
    parser.add_lightning_class_args(FiniteGuard, "finite_guard")
    parser.add_lightning_class_args(GradientExchange, "gradients")
    parser.add_lightning_class_args(GradientCoverage, "gradient_coverage")
    parser.add_lightning_class_args(ReplicaParity, "replica_parity")
    parser.add_lightning_class_args(Preemption, "preemption")


def refuse_lone_values(parser: LightningArgumentParser, config: Namespace) -> None:
    """Ends as a parser does where a config has `trainer: 5`, which jsonargparse lets pass."""
    for group in parser.groups or {}:
        value = config.get(group, Namespace())
        absent = value is None and group in ("model", "data")  # which a command may do without
        if not isinstance(value, Namespace) and not absent:
            parser.error(f'Parser key "{group}": expected settings, KEY: VALUE; found {value!r}')


def with_config_of_run(arguments: list[str], runs: Path = RUNS) -> list[str]:
    """`test --run_name NAME` uses the config that the run was last trained with, under overlays if there are some.

    Raises:
        FileNotFoundError: a run is to be evaluated that is not there, and no config is given.
    """
    given = _values(arguments, "--config") + _values(arguments, "-c")
    names = _values(arguments, "--run_name")
    kept = newest_config(runs / names[-1]) if names else None
    complete = given or any(argument.startswith(("--model", "--help", "-h")) for argument in arguments)
    if kept is None and names and not complete and arguments[0] in (*EVALUATIONS, "export"):
        there = ", ".join(sorted(path.parent.name for path in runs.glob("*/config.yaml"))) or "none"
        raise FileNotFoundError(f"{runs / names[-1]} is no run with a config.yaml; runs that are there: {there}")
    if kept is None or any(Path(path).resolve().parent.name != "overlays" for path in given):
        return arguments
    return [arguments[0], "--config", str(kept), *arguments[1:]]


def _values(arguments: list[str], option: str) -> list[str]:
    """What an option is given on the command line, as `--option VALUE` or `--option=VALUE`."""
    following = [value for key, value in zip(arguments, arguments[1:], strict=False) if key == option]
    return following + [key.removeprefix(option + "=") for key in arguments if key.startswith(option + "=")]
