"""The settings of a training as its command line would read them, without a run."""

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from jsonargparse import Namespace

from commands.cli import LockstepCLI
from commands.parser import LockstepParser, refuse_lone_values


class _Settings(LockstepCLI):
    """Parses what `fit` would, and stops there."""

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        return {"fit": LockstepCLI.subcommands()["fit"]}  # a parser for each command takes its time

    def parse_arguments(self, parser: LockstepParser, args: Any) -> None:
        self.all_settings = parser
        raise _Built(self)

    @property
    def fit_settings(self) -> LockstepParser:
        return self._parser("fit")


class _Built(Exception):
    """Carries the parser out of Lightning's constructor."""

    def __init__(self, settings: _Settings) -> None:
        self.settings = settings


@cache
def fit_parser() -> LockstepParser:
    """The parser of `train.py fit`; it raises what it would print."""
    try:
        _Settings([])
    except _Built as built:
        settings = built.settings
    for parser in (settings.all_settings, settings.fit_settings):
        parser.exit_on_error = False
    return settings.fit_settings


def parse_fit(arguments: list[str]) -> Namespace:
    """
    Args:
        arguments: of `train.py fit`.

    Raises:
        ArgumentError, ValueError, KeyError, TypeError: what is wrong with them first.
    """
    config = fit_parser().parse_args(arguments)
    refuse_lone_values(fit_parser(), config)
    return config


def parse_files(texts: Sequence[str]) -> Namespace:
    """The configs alone, without what the command line lays over them; see `parse_fit`."""
    return parse_fit([word for text in texts for word in ("--config", text)])


def made(config: Namespace, part: str) -> Any:
    """The model or the data of a config; the rest is not made."""
    alone = config.clone()
    for other in {"model", "data"} - {part}:
        alone[other] = None
    for key in ("logger", "callbacks", "plugins", "profiler"):
        alone.trainer[key] = None
    alone.trainer.strategy = "auto"
    return fit_parser().instantiate(alone)[part]


def of_one_micro_batch(config: Namespace, size: int) -> Namespace:
    """The same training on one process, whose global batch is one micro-batch; nothing it begins with is read."""
    alone = config.clone()
    given = alone.data.init_args
    given.batch_size, given.batch_size_per_device, given.micro_batch_size = size, None, None
    if "num_workers" in given:
        given.num_workers = 0
    model = alone.model.get("init_args")
    if model is not None and model.get("init_from"):
        model.init_from = None
    return alone


def shards(strategy: Any) -> bool:
    """Whether a strategy leaves each process a part of the weights."""
    name = strategy if isinstance(strategy, str) else strategy.get("class_path", "")
    return any(word in name.lower() for word in ("fsdp", "shard", "deepspeed", "modelparallel"))


def config_files(arguments: Sequence[str]) -> tuple[list[Path], Any]:
    """The config files of a command line, and a function that puts texts in their places."""
    places = [place + 1 for place, word in enumerate(arguments) if word == "--config"]

    def with_texts(texts: Sequence[str]) -> list[str]:
        given = list(arguments)
        for place, text in zip(places, texts, strict=True):
            given[place] = text
        return given

    files = [Path(arguments[place]) for place in places]
    return files, with_texts


def plain(settings: Any) -> Mapping[str, Any]:
    """As nested dictionaries."""
    return settings.as_dict() if hasattr(settings, "as_dict") else dict(settings)
