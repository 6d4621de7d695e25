"""Finds shipped configs from any directory, for an installed program without a checkout."""

import difflib
import os
from collections.abc import Sequence
from pathlib import Path

from commands.launch.command_line import CONFIG_OPTIONS, replace_values
from engine.system.installation import PROJECT

CONFIGS = "configs"


def resolve_shipped_configs(arguments: Sequence[str]) -> list[str]:
    """Replace each `--config configs/...` that does not exist here with the shipped file of that name."""
    return replace_values(arguments, CONFIG_OPTIONS, _find_shipped)


def closest_configs(missing: Path, limit: int = 3) -> list[str]:
    """Return existing config files for which a path may have been meant.

    Files of the same folder with a similar name come first. Without any, files in `configs/` with the same name in
    another folder or a similar path are returned.

    Args:
        missing: path that does not exist.
        limit: largest number of files.
    """
    if missing.parent.is_dir():
        beside = [path.name for path in sorted(missing.parent.iterdir()) if path.suffix in (".yaml", ".yml")]
        similar = difflib.get_close_matches(missing.name, beside, n=limit, cutoff=0.75)
        if similar:
            return [_display_path(missing.parent / name) for name in similar]
    existing = {
        path.relative_to(root).as_posix(): path
        for root in (PROJECT / CONFIGS, Path.cwd() / CONFIGS)  # the user's own replace shipped files
        for path in sorted(root.glob("**/*.yaml"))
    }
    after_configs = missing.as_posix().rpartition(f"{CONFIGS}/")[2]
    # An absolute path outside of any `configs/` is compared by its name alone.
    searched = missing.name if missing.is_absolute() and after_configs == missing.as_posix() else after_configs
    same_name = [name for name in existing if name.rpartition("/")[2] == missing.name]
    similar = difflib.get_close_matches(searched, same_name or list(existing), n=limit, cutoff=0 if same_name else 0.75)
    return [_display_path(existing[name]) for name in similar]


def _display_path(path: Path) -> str:
    """Return the path as a user may write it: relative to the working directory or to the program's folder."""
    for root in (Path.cwd(), PROJECT):
        if path.absolute().is_relative_to(root):
            return os.path.relpath(path.absolute(), root)
    return str(path)


def _find_shipped(config: str) -> str:
    """Return the shipped file if the path does not exist here; else the path unchanged."""
    if "\n" in config:  # the text of a config, which the parser accepts as well
        return config
    path = Path(config)
    if path.is_absolute() or path.parts[:1] != (CONFIGS,) or path.exists():
        return config
    shipped = PROJECT / path
    return str(shipped) if shipped.is_file() else config
