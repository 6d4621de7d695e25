"""Settings and options that a page may name, read from the parsers and from the signatures of classes."""

import inspect
import re
from typing import Any, get_args, get_type_hints

from accelerate.commands.launch import launch_command_parser
from lightning.pytorch.cli import LightningArgumentParser
from lightning.pytorch.strategies import DDPStrategy
from torch.distributed.run import get_args_parser
from torch.nn.parallel import DistributedDataParallel

from commands.cli import class_registry
from commands.cli.main import LockstepCLI
from engine.module import LockstepModule
from engine.strategies.fsdp import VerifiedFSDPStrategy
from engine.strategies.tensor_parallel import TensorParallelStrategy
from tests.conftest import REPOSITORY

OURS = ("callbacks", "commands", "datamodules", "engine", "lightning_modules")

# Options of other programs that the pages use.
OTHER_PROGRAMS = {
    "docker": "build-arg cpus gpus rm shm-size user",
    "git": "short",
    "kubectl": "from-env-file",
    "lmms_eval": "batch_size model model_args tasks",
    "mlflow": "backend-store-uri",
    "pip": "constraint editable",
    "prometheus": "config.file storage.tsdb.path",
    "pytest": "dist durations lf",
    "original guides, as symptoms": "continue_on_error skip_invalid_loss",
    "sbatch, scancel": "account array cpus-per-task gpus-per-node nodes ntasks-per-node partition signal time tmp",
    "tensorboard": "logdir",
    "vllm": "limit-mm-per-prompt",
}


class _Built(Exception):
    """Carries the parser out of LightningCLI before it parses."""


class _ParserAlone(LockstepCLI):
    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        raise _Built(parser)


def parser_of_all_commands() -> LightningArgumentParser:
    """Build the parser of fit, validate, test, predict, prepare and export."""
    try:
        _ParserAlone(["all of them"])
    except _Built as built:
        return built.args[0]
    raise AssertionError("LightningCLI has not parsed its arguments")


def option_strings(parser: LightningArgumentParser) -> set[str]:
    """Options of all commands, of the launchers and of the other programs that the pages use, as `--option`."""
    commands = parser._subcommands_action._name_parser_map.values()
    found = {option for command in commands for option in command._option_string_actions}
    for launcher in (get_args_parser(), launch_command_parser()):
        found |= set(launcher._option_string_actions)
    for folder in (
        "benchmarks",
        "commands/doctor",
        "commands/report",
        "commands/sweep",
        "deploy",
        "tests/fuzz",
        "tests/soak",
    ):
        for path in (REPOSITORY / folder).rglob("*.*"):
            if path.suffix in (".py", ".sh"):
                found |= set(re.findall(r"(?<![\w-])--[a-z][\w-]*", path.read_text(encoding="utf-8")))
    return found | {f"--{option}" for options in OTHER_PROGRAMS.values() for option in options.split()}


def setting_keys(parser: LightningArgumentParser, family: str | None = None) -> set[str]:
    """Dotted keys of all settings without `init_args`: `model.language_model.lora.rank`.

    Args:
        parser: the parser of all commands.
        family: the family whose models and data count (`document_qa`); None for all families.
    """
    fit = parser._subcommands_action._name_parser_map["fit"]
    found = {option.removeprefix("--") for option in fit._option_string_actions}
    found |= {"model.class_path", "data.class_path"}
    for strategy in (DDPStrategy, DistributedDataParallel, VerifiedFSDPStrategy, TensorParallelStrategy):
        found |= {f"trainer.strategy.{key}" for key in _keys(strategy)}
    for kind in (getattr(class_registry, name) for name in class_registry.__all__):
        if family is None or kind.__module__.split(".")[1] == family:
            section = "model" if issubclass(kind, LockstepModule) else "data"
            found |= {f"{section}.{key}" for key in _keys(kind)}
    return found


def _keys(kind: type) -> set[str]:
    """Arguments of a class and its bases, each with the arguments of the project's classes in its annotation."""
    found = set()
    for base in kind.__mro__[:-1]:
        hints = get_type_hints(base.__init__) if _is_ours(base) else {}
        for parameter in list(inspect.signature(base.__init__).parameters.values())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                found.add(parameter.name)
            inner = filter(_is_ours, _classes(hints.get(parameter.name)))
            found |= {f"{parameter.name}.{key}" for inner_class in inner for key in _keys(inner_class)}
    return found


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0] in OURS


def _classes(annotation: Any) -> set[type]:
    """Classes in an annotation such as `list[A] | None`."""
    if isinstance(annotation, type) and not get_args(annotation):
        return {annotation}
    return {kind for part in get_args(annotation) for kind in _classes(part)}
