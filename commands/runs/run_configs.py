"""Lists the configs of a run: config.yaml, and config-2.yaml, config-3.yaml, ... of resumes with other settings."""

import re
from pathlib import Path


def numbered_configs(folder: Path) -> list[Path]:
    """Return the configs of the run in `folder`, oldest first."""
    numbers = {path: number for path in folder.glob("config-*.yaml") if (number := config_number(path)) is not None}
    first = folder / "config.yaml"
    return ([first] if first.is_file() else []) + sorted(numbers, key=numbers.__getitem__)


def config_number(path: Path) -> int | None:
    """Return the number of a config: 1 for config.yaml; None for a file of another name."""
    match = re.fullmatch(r"config(?:-(\d+))?\.yaml", path.name)
    return int(match[1] or 1) if match else None
