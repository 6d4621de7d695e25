"""Reads models of transformers from directories and from the hub, and says what is wrong in terms of the config."""

import difflib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.hub import why_unreachable

if TYPE_CHECKING:
    from transformers import PretrainedConfig

_WEIGHTS = ("*.safetensors", "*.bin")


def config_of(section: str, given: Mapping[str, Any], examples: str, **own: Any) -> "PretrainedConfig":
    """The config of a model with random weights.

    Args:
        section: of our config, for messages: `language_model` or `vision_tower`.
        given: its `config`, with a `model_type`.
        examples: model types that one could have meant.
        own: settings that are not the user's to choose.

    Raises:
        ValueError: there is no such model type, or it has no such setting.
    """
    from transformers import AutoConfig

    chosen = dict(given)
    kind = chosen.pop("model_type", None)
    if kind is None:
        raise ValueError(f"{section}.config has no model_type, such as {examples}")
    try:
        known = AutoConfig.for_model(kind)
    except ValueError:
        raise ValueError(f"{section}.config.model_type is {kind!r}, which transformers does not know") from None
    for key in chosen:
        if not hasattr(known, key):  # transformers takes any key, a misspelt one without effect
            near = difflib.get_close_matches(key, known.to_dict(), n=1)
            raise ValueError(
                f"{section}.config.{key}: {kind} has no such setting" + (f"; did you mean {near[0]}?" if near else "")
            )
    return AutoConfig.for_model(kind, **chosen, **own)


def require_local_files(section: str, path: str) -> None:
    """Raises ValueError when a path is meant as a directory, and there is none or it is no model's."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        lacking = [] if (folder / "config.json").is_file() else ["config.json"]
        if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
            lacking.append("weights (*.safetensors)")
        if lacking:
            raise ValueError(
                f"{section}.path: {path} has no {' and no '.join(lacking)}; "
                "give a directory that save_pretrained of transformers has written"
            )
    elif folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise ValueError(f"{section}.path: there is no directory {path}")


def read_pretrained(section: str, auto: Any, path: str, **options: Any) -> Any:
    """`auto.from_pretrained` of a directory, of the cache or of the hub; does not wait for a hub that is out of reach.

    Raises:
        ValueError: it is nowhere, or cannot be loaded; says what to do.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # of every process, over the lines of the others
    local = Path(path).expanduser()
    options["trust_remote_code"] = False
    try:
        if local.is_dir():
            return auto.from_pretrained(str(local), local_files_only=True, **options)
        if why_unreachable():  # otherwise the cache would be asked after half a minute of attempts
            options["local_files_only"] = True
        return auto.from_pretrained(path, **options)
    except (OSError, ImportError, ValueError, RuntimeError, SafetensorError) as error:
        said = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        if local.is_dir():
            raise ValueError(f"{section}.path: {path} cannot be loaded: {said}") from error
        raise ValueError(
            f"{section}.path: {path} is neither a local directory nor in the cache nor to be had from the hub: "
            f"{why_unreachable() or said}. Fetch it where there is a network (hf download {path} --local-dir DIR) and "
            f"set {section}.path to DIR"
        ) from error


def switch_off_dropout(config: "PretrainedConfig") -> None:
    """For a frozen model that stays in training mode."""
    for key, value in config.to_dict().items():
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)


def few(names: Iterable[str]) -> str:
    """The first of the names of weights, and how many there are besides."""
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more weights" if len(ordered) > 3 else "")
