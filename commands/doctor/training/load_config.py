"""Parses a config as `fit` parses it, without starting a run."""

from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonargparse import Namespace
from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from commands.cli.arguments import refuse_lone_values
from commands.cli.deprecated_names import replace_aliases
from commands.cli.main import LockstepCLI
from commands.launch.command_line import CONFIG_OPTIONS, replace_values, values_of


class _ParserOnlyCLI(LockstepCLI):
    """Builds the parser of `fit`, and stops there."""

    @staticmethod
    @override
    def subcommands() -> dict[str, set[str]]:
        return {"fit": LockstepCLI.subcommands()["fit"]}  # each command's parser takes seconds to build

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: object) -> None:
        self.full_parser = parser
        raise _ParserBuilt(self)

    @property
    def fit_parser(self) -> LightningArgumentParser:
        return self.subcommand_parser("fit")


class _ParserBuilt(Exception):
    """Ends Lightning's constructor once the parser exists."""

    def __init__(self, cli: _ParserOnlyCLI) -> None:
        self.cli = cli


@cache
def fit_parser() -> LightningArgumentParser:
    """Return the parser of `train.py fit`; it raises errors instead of printing them."""
    try:
        _ParserOnlyCLI([])
    except _ParserBuilt as built:
        cli = built.cli
    for parser in (cli.full_parser, cli.fit_parser):
        parser.exit_on_error = False
    return cli.fit_parser


def parse_fit(arguments: list[str]) -> Namespace:
    """Return the config of a command line.

    Args:
        arguments: arguments of `train.py fit`.

    Raises:
        ArgumentError, ValueError, KeyError, TypeError: the first error in the arguments.
    """
    config = fit_parser().parse_args(replace_aliases(arguments))
    refuse_lone_values(fit_parser(), config)
    return config


def parse_files(texts: Sequence[str]) -> Namespace:
    """Return the config of files alone, without options of the command line; see `parse_fit`."""
    return parse_fit([word for text in texts for word in ("--config", text)])


def instantiate_part(config: Namespace, part: str) -> Any:
    """Return the `model` or the `data` of a config, without creating anything else of it."""
    reduced = config.clone()
    for unused in {"model", "data"} - {part}:
        reduced[unused] = None
    for key in ("logger", "callbacks", "plugins", "profiler"):
        reduced.trainer[key] = None
    reduced.trainer.strategy = "auto"
    return fit_parser().instantiate(reduced)[part]


def single_micro_batch(config: Namespace, size: int) -> Namespace:
    """Return a config for one rank whose global batch is one micro-batch; it loads no weights of an earlier stage."""
    single = config.clone()
    data = single.data.init_args
    data.batch_size, data.batch_size_per_device, data.micro_batch_size = size, None, None
    if "num_workers" in data:
        data.num_workers, data.prefetch_factor = 0, None
    model = single.model.get("init_args")
    if model is not None and model.get("init_from"):
        model.init_from = None
    return single


def is_sharded_strategy(strategy: Any) -> bool:
    """Return whether a strategy shards the weights over the ranks."""
    name = strategy if isinstance(strategy, str) else strategy.get("class_path", "")
    return any(word in name.lower() for word in ("fsdp", "shard", "deepspeed", "modelparallel", "tensorparallel"))


def ranks_of_group(strategy: Any) -> int:
    """Return how many ranks read the same samples: `tensor_parallel` of the strategy, or 1."""
    settings = {} if isinstance(strategy, str) else strategy.get("init_args") or {}
    return settings.get("tensor_parallel") or 1


def split_config_files(arguments: Sequence[str]) -> tuple[list[Path], Callable[[Sequence[str]], list[str]]]:
    """Return the config files of a command line, and a function that returns it with texts in their place."""

    def with_texts(texts: Sequence[str]) -> list[str]:
        remaining = iter(texts)
        return replace_values(arguments, CONFIG_OPTIONS, lambda _: next(remaining))

    return [Path(value) for value in values_of(arguments, *CONFIG_OPTIONS)], with_texts


def to_dict(settings: Any) -> Mapping[str, Any]:
    """Return a namespace as nested dictionaries."""
    return settings.as_dict() if hasattr(settings, "as_dict") else dict(settings)
