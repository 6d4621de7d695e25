"""Reads SWEEP.yaml and refuses wrong values with their lines."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NoReturn

import yaml

from commands.runs.current_names import REMOVED_OPTIONS, current_value
from commands.sweep.sweep_settings import Parameter, Pruner, Sampler, SweepSettings, Value, option_text
from engine.io.yaml_file import YamlFileError, check_yaml, parse_yaml, read_text
from engine.number_check import is_integer, is_number

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


def read_sweep(path: Path) -> SweepSettings:
    """Read a file of a sweep.

    Raises:
        YamlFileError: a key is missing, unknown or has a wrong value; names file and line.
        OSError: the file cannot be read.
    """
    text = read_text(path)
    tree = check_yaml(text, str(path))
    return _Reader(str(path), dict(_line_numbers(tree)) if tree else {}).sweep(parse_yaml(text, str(path)))


class _Reader:
    """Checks the values of the file, and knows the line of each key."""

    def __init__(self, name: str, lines: Mapping[tuple[str, ...], int]) -> None:
        self._name, self._lines = name, lines

    def sweep(self, content: object) -> SweepSettings:
        section = self._section((), content, _KEYS, required=("metric", "direction", "trials", "parameters"))
        metric = section["metric"]
        if not isinstance(metric, str) or not metric.startswith("val/"):
            self._refuse(("metric",), metric, "a metric of the validation, as val/loss")
        direction = section["direction"]
        if direction not in ("maximize", "minimize"):
            self._refuse(("direction",), direction, "maximize or minimize")
        return SweepSettings(
            metric=metric, direction=direction, trials=self._parse_integer(("trials",), section["trials"], 1, 100_000),
            seed=self._parse_integer(("seed",), section.get("seed", 1), 0, 2**32 - 1),
            sampler=self._sampler(section.get("sampler", "tpe")), pruner=self._pruner(section.get("pruner", "none")),
            parameters=self._parameters(section["parameters"]),
        )  # fmt: skip

    def _sampler(self, node: object) -> Sampler:
        options = self._options("sampler", node, ("tpe", "random"), ("startup_trials",))
        return Sampler(options.pop("type"), **options)  # type: ignore[arg-type]  # `_options` checks them

    def _pruner(self, node: object) -> Pruner:
        options = self._options("pruner", node, ("median", "none"), ("startup_trials", "warmup_steps"))
        return Pruner(options.pop("type"), **options)  # type: ignore[arg-type]  # `_options` checks them

    def _options(self, name: str, node: object, types: tuple[str, ...], counts: tuple[str, ...]) -> dict[str, object]:
        """Return the options of `sampler: tpe` or of `sampler: {type: tpe, startup_trials: 4}`."""
        if isinstance(node, str | None):
            node = {"type": node or "none"}
        section = self._section((name,), node, ("type", *counts), required=("type",))
        if section["type"] not in types:
            self._refuse(
                (name, "type") if (name, "type") in self._lines else (name,), section["type"], " or ".join(types)
            )
        return {key: value if key == "type" else self._parse_integer((name, key), value, 0, 10**9)
                for key, value in section.items()}  # fmt: skip

    def _parameters(self, node: object) -> tuple[Parameter, ...]:
        if not isinstance(node, dict) or not node:
            self._refuse(("parameters",), node, "at least one KEY: {type: float, low: 0.1, high: 1}")
        parameters = tuple(self._parameter(key, value) for key, value in node.items())
        for number, parameter in enumerate(parameters):
            for before in parameters[:number]:
                if parameter.overrides(before.key):
                    self._refuse(
                        ("parameters", parameter.key), f"{parameter.key} after {before.key}, which it overrides",
                        "different settings",
                    )  # fmt: skip
        return parameters

    def _parameter(self, key: object, node: object) -> Parameter:
        path = ("parameters", str(key))
        if not isinstance(key, str) or not _DOTTED.fullmatch(key) or key in _RESERVED:
            self._refuse(path, key, "a key of the config, as model.init_args.learning_rate")
        if key in REMOVED_OPTIONS:  # `fit` ignores it, so all trials would be the same
            self._refuse(path, f"{key}, which was removed", f"another setting: {REMOVED_OPTIONS[key]}")
        kind = node.get("type") if isinstance(node, dict) else None
        if not isinstance(kind, str) or kind not in _KINDS:
            self._refuse((*path, "type"), kind, "float, int or categorical")
        needed = ("values",) if kind == "categorical" else ("low", "high")
        section = self._section(path, node, _KINDS[kind], required=needed)
        line = self._line(path) or 0
        if kind == "categorical":
            return Parameter(key, "categorical", values=self._values((*path, "values"), section["values"]), line=line)
        low, high = (self._parse_number((*path, end), section[end], kind == "int") for end in ("low", "high"))
        log = section.get("log", False)
        if not isinstance(log, bool):
            self._refuse((*path, "log"), log, "true or false")
        if low >= high:
            self._refuse((*path, "high"), section["high"], f"more than low, which is {section['low']}")
        if log and low <= 0:
            self._refuse((*path, "low"), section["low"], "more than 0 with log: true")
        step = (
            self._parse_integer((*path, "step"), section.get("step", 1), 1, int(high - low) or 1)
            if kind == "int"
            else 1
        )
        if kind == "int" and int(high - low) % step:
            self._refuse((*path, "step"), step, f"a divisor of high - low, which is {int(high - low)}")
        if log and step > 1:
            self._refuse((*path, "step"), step, "1 with log: true")
        return Parameter(key, "int" if kind == "int" else "float", low, high, log, step, line=line)

    def _values(self, path: tuple[str, ...], values: object) -> tuple[Value, ...]:
        if not isinstance(values, list) or len(values) < 2:
            self._refuse(path, values, "a list of at least two values")
        for value in values:
            if not isinstance(value, str | int | float | bool | None):
                self._refuse(path, value, "texts, numbers, true, false or null")
        if len(values) > _MAX_VALUES:
            self._refuse(path, f"{len(values):,} values", f"at most {_MAX_VALUES:,}")
        # The old name of a value, which fit reads as the current name, is the same value.
        texts = [option_text(current_value(path[1], value)) for value in values]
        for number, value in enumerate(values):
            for before, text in zip(values[:number], texts, strict=False):
                if value == before or texts[number] == text:
                    found = f"{json.dumps(before)} and {json.dumps(value)}"
                    self._refuse(path, found, "different values; Optuna or the command line of fit takes them as equal")
        return tuple(values)

    def _section(
        self, path: tuple[str, ...], node: object, allowed: tuple[str, ...], required: tuple[str, ...]
    ) -> dict[str, object]:
        if not isinstance(node, dict):
            self._refuse(path, node, f"the keys {', '.join(required)}")
        for key in node:
            if key not in allowed:
                raise YamlFileError(
                    self._name, f"found the key {'.'.join((*path, str(key)))}, expected one of {', '.join(allowed)}",
                    self._line((*path, str(key))),
                )  # fmt: skip
        for key in required:
            if key not in node:
                raise YamlFileError(self._name, f"the key {'.'.join((*path, key))} is missing", self._line(path) or 1)
        return dict(node)

    def _parse_integer(self, path: tuple[str, ...], number: object, low: int, high: int) -> int:
        if not is_integer(number) or not low <= number <= high:
            self._refuse(path, number, f"an integer from {low} to {high}")
        return number

    def _parse_number(self, path: tuple[str, ...], node: object, whole: bool) -> float:
        if whole:
            return self._parse_integer(path, node, -(2**53), 2**53)
        try:  # YAML 1.1 reads 1e-4 as a text
            number = float(node) if isinstance(node, str) or is_number(node) else math.nan
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self._refuse(path, node, "a number")
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


def _line_numbers(node: yaml.Node, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], int]]:
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            inner = (*path, str(key.value))
            yield inner, key.start_mark.line + 1
            yield from _line_numbers(value, inner)
