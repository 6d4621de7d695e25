"""Reads SWEEP.yaml: what is searched, by which metric, with which sampler and pruner."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple, NoReturn

import yaml

from commands.cli.configs.files import without_init_args
from engine.io.yaml_file import YamlFileError, check_yaml, parse_yaml, read_text

Value = str | int | float | bool | None

_KEYS = ("metric", "direction", "trials", "seed", "sampler", "pruner", "parameters")
_KINDS: Mapping[str, tuple[str, ...]] = {
    "float": ("type", "low", "high", "log"),
    "int": ("type", "low", "high", "log", "step"),
    "categorical": ("type", "values"),
}
_RESERVED = ("run_name", "runs", "ckpt_path", "config")
_DOTTED = re.compile(r"[A-Za-z_]\w*(\.\w+)*")
_MAX_VALUES = 1000
"""Most values of a categorical parameter, each of which is checked before the study begins."""


def option_text(value: Value) -> str:
    """Return a value as an option of the command line has it.

    A text is not quoted: the parser of fit would keep the quotes. The type of the option decides what `1` or `null` is.
    """
    return {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else str(value)


class Parameter(NamedTuple):
    """A setting that is searched, and its values."""

    key: str  # dotted key of the config, as on the command line: `model.init_args.learning_rate`
    kind: Literal["float", "int", "categorical"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: int = 1
    values: tuple[Value, ...] = ()
    line: int = 0  # in SWEEP.yaml

    def overrides(self, key: str) -> bool:
        """Return whether a value of this parameter, later on a command line, overrides that of a dotted key.

        `model.dropout` overrides `model.init_args.dropout`, and `model` overrides both.
        """
        return f"{without_init_args(key)}.".startswith(f"{without_init_args(self.key)}.")


class Sampler(NamedTuple):
    """How the values of a trial are chosen."""

    type: Literal["tpe", "random"] = "tpe"
    startup_trials: int = 10  # random trials before the tree-structured Parzen estimator


class Pruner(NamedTuple):
    """When a trial ends early: if its best value so far is worse than the median of the trials before at that step."""

    type: Literal["median", "none"] = "none"
    startup_trials: int = 5  # trials that end by themselves before any is pruned
    warmup_steps: int = 0  # optimizer steps of a trial before it is pruned


class SweepSettings(NamedTuple):
    """Content of SWEEP.yaml."""

    metric: str
    direction: Literal["maximize", "minimize"]
    trials: int
    seed: int
    sampler: Sampler
    pruner: Pruner
    parameters: tuple[Parameter, ...]

    def best(self, values: list[float]) -> float:
        """Return the best of some values, which are not empty."""
        return max(values) if self.direction == "maximize" else min(values)


def read_sweep(path: Path) -> SweepSettings:
    """Read a file of a sweep.

    Raises:
        YamlFileError: a key is missing, unknown or has a wrong value; names file and line.
        OSError: the file cannot be read.
    """
    text = read_text(path)
    tree = check_yaml(text, str(path))
    return _Reader(str(path), dict(_lines(tree)) if tree else {}).sweep(parse_yaml(text, str(path)))


class _Reader:
    """Checks the values of the file, and knows the line of each key."""

    def __init__(self, name: str, lines: Mapping[tuple[str, ...], int]) -> None:
        self._name, self._lines = name, lines

    def sweep(self, content: object) -> SweepSettings:
        found = self._section((), content, _KEYS, required=("metric", "direction", "trials", "parameters"))
        metric = found["metric"]
        if not isinstance(metric, str) or not metric.startswith("val/"):
            self._refuse(("metric",), metric, "a metric of the validation, as val/loss")
        direction = found["direction"]
        if direction not in ("maximize", "minimize"):
            self._refuse(("direction",), direction, "maximize or minimize")
        return SweepSettings(
            metric, direction, self._integer(("trials",), found["trials"], 1, 100_000),
            self._integer(("seed",), found.get("seed", 1), 0, 2**32 - 1),
            self._sampler(found.get("sampler", "tpe")), self._pruner(found.get("pruner", "none")),
            self._parameters(found["parameters"]),
        )  # fmt: skip

    def _sampler(self, given: object) -> Sampler:
        options = self._options("sampler", given, ("tpe", "random"), ("startup_trials",))
        return Sampler(options.pop("type"), **options)  # type: ignore[arg-type]  # `_options` checks them

    def _pruner(self, given: object) -> Pruner:
        options = self._options("pruner", given, ("median", "none"), ("startup_trials", "warmup_steps"))
        return Pruner(options.pop("type"), **options)  # type: ignore[arg-type]  # `_options` checks them

    def _options(self, name: str, given: object, types: tuple[str, ...], counts: tuple[str, ...]) -> dict[str, object]:
        """Return the options of `sampler: tpe` or of `sampler: {type: tpe, startup_trials: 4}`."""
        if isinstance(given, str | None):
            given = {"type": given or "none"}
        found = self._section((name,), given, ("type", *counts), required=("type",))
        if found["type"] not in types:
            self._refuse(
                (name, "type") if (name, "type") in self._lines else (name,), found["type"], " or ".join(types)
            )
        return {key: value if key == "type" else self._integer((name, key), value, 0, 10**9)
                for key, value in found.items()}  # fmt: skip

    def _parameters(self, given: object) -> tuple[Parameter, ...]:
        if not isinstance(given, dict) or not given:
            self._refuse(("parameters",), given, "at least one KEY: {type: float, low: 0.1, high: 1}")
        found = tuple(self._parameter(key, value) for key, value in given.items())
        for number, parameter in enumerate(found):
            for before in found[:number]:
                if parameter.overrides(before.key):
                    self._refuse(
                        ("parameters", parameter.key), f"{parameter.key} after {before.key}, which it overrides",
                        "different settings",
                    )  # fmt: skip
        return found

    def _parameter(self, key: object, given: object) -> Parameter:
        path = ("parameters", str(key))
        if not isinstance(key, str) or not _DOTTED.fullmatch(key) or key in _RESERVED:
            self._refuse(path, key, "a key of the config, as model.init_args.learning_rate")
        kind = given.get("type") if isinstance(given, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            self._refuse((*path, "type"), kind, "float, int or categorical")
        needed = ("values",) if kind == "categorical" else ("low", "high")
        found = self._section(path, given, _KINDS[kind], required=needed)
        line = self._line(path) or 0
        if kind == "categorical":
            return Parameter(key, "categorical", values=self._values((*path, "values"), found["values"]), line=line)
        low, high = (self._number((*path, end), found[end], kind == "int") for end in ("low", "high"))
        log = found.get("log", False)
        if not isinstance(log, bool):
            self._refuse((*path, "log"), log, "true or false")
        if low >= high:
            self._refuse((*path, "high"), found["high"], f"more than low, which is {found['low']}")
        if log and low <= 0:
            self._refuse((*path, "low"), found["low"], "more than 0 with log: true")
        step = self._integer((*path, "step"), found.get("step", 1), 1, int(high - low) or 1) if kind == "int" else 1
        if kind == "int" and int(high - low) % step:
            self._refuse((*path, "step"), step, f"a divisor of high - low, which is {int(high - low)}")
        if log and step > 1:
            self._refuse((*path, "step"), step, "1 with log: true")
        return Parameter(key, "int" if kind == "int" else "float", low, high, log, step, line=line)

    def _values(self, path: tuple[str, ...], given: object) -> tuple[Value, ...]:
        if not isinstance(given, list) or len(given) < 2:
            self._refuse(path, given, "a list of at least two values")
        for value in given:
            if not isinstance(value, str | int | float | bool | None):
                self._refuse(path, value, "texts, numbers, true, false or null")
        if len(given) > _MAX_VALUES:
            self._refuse(path, f"{len(given):,} values", f"at most {_MAX_VALUES:,}")
        texts = [option_text(value) for value in given]
        for number, value in enumerate(given):
            for before, text in zip(given[:number], texts, strict=False):
                if value == before or texts[number] == text:
                    found = f"{json.dumps(before)} and {json.dumps(value)}"
                    self._refuse(path, found, "different values; Optuna or the command line of fit takes them as equal")
        return tuple(given)

    def _section(
        self, path: tuple[str, ...], given: object, allowed: tuple[str, ...], required: tuple[str, ...]
    ) -> dict[str, object]:
        if not isinstance(given, dict):
            self._refuse(path, given, f"the keys {', '.join(required)}")
        for key in given:
            if key not in allowed:
                raise YamlFileError(
                    self._name, f"found the key {'.'.join((*path, str(key)))}, expected one of {', '.join(allowed)}",
                    self._line((*path, str(key))),
                )  # fmt: skip
        for key in required:
            if key not in given:
                raise YamlFileError(self._name, f"the key {'.'.join((*path, key))} is missing", self._line(path) or 1)
        return dict(given)

    def _integer(self, path: tuple[str, ...], given: object, low: int, high: int) -> int:
        if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
            self._refuse(path, given, f"an integer from {low} to {high}")
        return given

    def _number(self, path: tuple[str, ...], given: object, is_integer: bool) -> float:
        if is_integer:
            return self._integer(path, given, -(2**53), 2**53)
        try:  # YAML 1.1 reads 1e-4 as a text
            number = float(given) if isinstance(given, int | float | str) and not isinstance(given, bool) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self._refuse(path, given, "a number")
        return number

    def _refuse(self, path: tuple[str, ...], found: object, expected: str) -> NoReturn:
        shown = "nothing" if found is None else str(found)[:100]
        where = ".".join(path) or "the file"
        raise YamlFileError(self._name, f"{where}: found {shown}, expected {expected}", self._line(path) or 1)

    def _line(self, path: tuple[str, ...]) -> int | None:
        """Return the line of a key, or of the innermost section around it that the file has."""
        while path and path not in self._lines:
            path = path[:-1]
        return self._lines.get(path)


def _lines(node: yaml.Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            yield inner, key.start_mark.line + 1
            yield from _lines(value, inner)
