"""Compares configs of runs as flat keys, and groups runs that differ only in the seed."""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from callbacks.trackers.tracker_keys import TRACKER_KEYS
from commands.runs.current_names import current_key, current_value, rename_groups
from commands.runs.run_configs import numbered_configs
from engine.io.yaml_file import YamlFileError, read_yaml
from engine.system.installation import PROGRAM

SEED = "seed_everything"

_MONITORING = re.compile(
    rf"(prometheus|log|{'|'.join(TRACKER_KEYS)}|sample_previews|watchdog|trainer\.logger)(\.|$)"
    r"|(distributed_debug|trainer\.enable_progress_bar)$"
)
"""Settings of monitoring, which differ between equal runs: two runs on a machine cannot use the same port."""

Settings = Mapping[str, str]
"""{`model.init_args.dropout`: `0.1`}"""


class RecordedSettings(NamedTuple):
    """Settings of the starts of a run."""

    of_files: dict[str, Settings]
    """{`config.yaml`: settings, `config-2.yaml`: ...}, in the order of the starts."""
    problems: list[str]
    """A message for each file that is not a mapping, which `of_files` lacks."""

    @property
    def newest(self) -> Settings:
        """Settings of the newest start; empty without a config."""
        return next(reversed(self.of_files.values()), {})


def read_recorded_settings(folder: Path) -> RecordedSettings:
    """Read the configs that a run has written.

    Raises:
        ValueError: a file is not YAML; see `engine.io.yaml_file`.
    """
    recorded = RecordedSettings({}, [])
    for path in numbered_configs(folder):
        try:
            config = read_yaml(path)
        except YamlFileError as error:
            raise ValueError(f"{error}; {path.name} is written by {PROGRAM} fit") from error
        if isinstance(config, Mapping):
            recorded.of_files[path.name] = flatten(rename_groups(config))
        else:
            recorded.problems.append(
                f"{path}: found {describe_kind(config)}, expected the settings of a run, KEY: VALUE; skipped"
            )
    return recorded


def describe_kind(value: object) -> str:
    """Return what a value that should be a mapping is."""
    return "nothing" if value is None else "a list" if isinstance(value, list) else "a single value"


def flatten(config: Mapping[str, object]) -> dict[str, str]:
    """Return nested settings with dotted keys and values as JSON, strings without quotes."""
    settings: dict[str, str] = {}

    def visit(key: str, value: object) -> None:
        if isinstance(value, Mapping) and value:
            for name, inner in value.items():
                visit(current_key(f"{key}.{name}" if key else str(name)), inner)
        elif isinstance(value, list) and any(isinstance(item, Mapping) for item in value):
            for index, item in enumerate(value):
                visit(f"{key}.{index}", item)
        else:
            value = current_value(key, value)
            settings[key] = value if isinstance(value, str) else json.dumps(value, default=str)

    visit("", config)
    return settings


def differences(configs: Sequence[Settings]) -> list[tuple[str, list[str | None]]]:
    """Return the keys whose values differ, with the value of each config; None where a config lacks the key."""
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = ((key, [config.get(key) for config in configs]) for key in keys)
    return [(key, values) for key, values in rows if len(set(values)) > 1]


def seed_groups(configs: Sequence[Settings]) -> list[list[int]]:
    """Return groups of indices of runs with the same config and different seeds."""
    groups: list[list[int]] = []
    for index, config in enumerate(configs):
        for group in groups:
            members = [configs[member] for member in group]
            if config and _without_seed(config) == _without_seed(members[0]) and _is_new_seed(config, members):
                group.append(index)
                break
        else:
            groups.append([index])
    return groups


def group_name(names: Sequence[str]) -> str:
    """Return the common part of the names: `sasrec` of `sasrec-seed1` and `sasrec-seed2`."""
    if len(names) == 1:
        return names[0]
    shortest = min(names, key=len)
    length = next((at for at, letter in enumerate(shortest) if any(n[at] != letter for n in names)), len(shortest))
    # Cuts the word of the seed and its digits, which the names may have in common.
    stem = re.sub(r"([-_. ]+s|seeds?)?[-_. =\d]*$", "", shortest[:length])
    return stem.rstrip("-_. =") or f"{names[0]} and others"


def _without_seed(config: Settings) -> dict[str, str]:
    """Return the settings without the seed and without monitoring."""
    return {key: value for key, value in config.items() if key != SEED and not _MONITORING.match(key)}


def _is_new_seed(config: Settings, members: Sequence[Settings]) -> bool:
    return config.get(SEED) not in {member.get(SEED) for member in members}
