"""The configs of runs as flat keys, where they differ, and which runs differ in their seed alone."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

SEED = "seed_everything"

_BESIDE_THE_TRAINING = re.compile(
    r"(metrics_endpoint|log|wandb|mlflow|example_log|watchdog|trainer\.logger)(\.|$)"
    r"|(distributed_debug|trainer\.enable_progress_bar)$"
)
"""Settings of how a run is watched: two that are trained side by side on a machine cannot have the same port."""

_MOST = 1_000_000
"""Parts and characters of a config, at most; a few lines of YAML can refer to each other for ever."""

Settings = Mapping[str, str]
"""{`model.init_args.dropout`: `0.1`}"""


def read_settings(folder: Path) -> dict[str, Settings]:
    """{`config.yaml`: its settings, `config-2.yaml`: ...}, in the order in which a run was started with them.

    Raises:
        ValueError: a file is not YAML, or more than a config can be.
    """
    numbered = {int(match[1]): path for path in folder.glob("config-*.yaml") if (match := _NUMBER.match(path.name))}
    first = folder / "config.yaml"
    paths = ([first] if first.is_file() else []) + [numbered[number] for number in sorted(numbered)]
    found = {}
    for path in paths:
        try:
            config = yaml.load(path.read_text(encoding="utf-8"), _LOADER) or {}
        except (yaml.YAMLError, UnicodeDecodeError) as error:
            raise ValueError(f"{path} is not YAML: {error}; config.yaml is written by train.py fit") from error
        if _is_too_large(config):
            raise ValueError(f"{path} has more than {_MOST:,} parts, so it is not what train.py fit has written")
        found[path.name] = flat(config)
    return found


def flat(config: Mapping[str, Any]) -> dict[str, str]:
    """Nested settings by dotted keys, their values as JSON has them, texts without quotes."""
    settings: dict[str, str] = {}

    def visit(key: str, value: Any) -> None:
        if isinstance(value, Mapping) and value:
            for name, inner in value.items():
                visit(f"{key}.{name}" if key else str(name), inner)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for place, item in enumerate(value):
                visit(f"{key}.{place}", item)
        else:
            settings[key] = value if isinstance(value, str) else json.dumps(value, default=str)

    visit("", config)
    return settings


def differences(configs: Sequence[Settings]) -> list[tuple[str, list[str | None]]]:
    """The keys whose values are not all the same, each with every config's value; None where it has none."""
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = ((key, [config.get(key) for config in configs]) for key in keys)
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def seed_groups(configs: Sequence[Settings]) -> list[list[int]]:
    """Runs, by their places, that were trained with the same config from different seeds."""
    groups: list[list[int]] = []
    for place, config in enumerate(configs):
        for group in groups:
            others = [configs[other] for other in group]
            if config and _unseeded(config) == _unseeded(others[0]) and _is_another_seed(config, others):
                group.append(place)
                break
        else:
            groups.append([place])
    return groups


def group_name(names: Sequence[str]) -> str:
    """What the runs' names have in common: `sasrec-seed1` and `sasrec-seed2` are `sasrec`."""
    if len(names) == 1:
        return names[0]
    shortest = min(names, key=len)
    length = next((at for at, letter in enumerate(shortest) if any(n[at] != letter for n in names)), len(shortest))
    stem = re.sub(r"([-_. ]+s|seeds?)?[-_. =\d]*$", "", shortest[:length])
    return stem.rstrip("-_. =") or f"{names[0]} and others"


def _unseeded(config: Settings) -> dict[str, str]:
    """What a training depends on, but its seed."""
    return {key: value for key, value in config.items() if key != SEED and not _BESIDE_THE_TRAINING.match(key)}


def _is_another_seed(config: Settings, others: Sequence[Settings]) -> bool:
    return config.get(SEED) not in {other.get(SEED) for other in others}


def _is_too_large(config: Any) -> bool:
    """Counts each part as often as it is referred to."""
    left, size = [config], 0
    while left and size <= _MOST:
        part = left.pop()
        size += len(part) if isinstance(part, str) else 1
        if isinstance(part, Mapping):
            left.extend(part.values())
        elif isinstance(part, list):
            left.extend(part)
    return size > _MOST


_NUMBER = re.compile(r"config-(\d+)\.yaml$")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
