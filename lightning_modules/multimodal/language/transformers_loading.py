"""Loads models of transformers from directories and the hub, with errors in terms of the run's config."""

import difflib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from engine.io.error_line import first_line
from engine.system.hf_hub import hub_unreachable_reason
from engine.system.oom import is_oom_error

if TYPE_CHECKING:
    from transformers import PretrainedConfig

T = TypeVar("T")

_WEIGHTS = ("*.safetensors", "*.bin")


def config_of(section: str, given: Mapping[str, Any], examples: str, **own: Any) -> "PretrainedConfig":
    """Return the config of a model with random weights.

    Args:
        section: section of the run's config, for messages: `language_model` or `vision_tower`.
        given: the section's `config`, with a `model_type`.
        examples: model types to suggest in a message.
        own: settings that the user cannot choose.

    Raises:
        ValueError: the model type or a setting is unknown.
    """
    from transformers import AutoConfig

    # A copy, because `pop` would change the settings, which identify the model in checkpoints.
    settings = dict(given)
    kind = settings.pop("model_type", None)
    if kind is None:
        raise ValueError(f"{section}.config has no model_type, such as {examples}")
    try:
        default_config = AutoConfig.for_model(kind)
    except (ValueError, TypeError):
        # `from None`: transformers' own message lists some hundred model types.
        raise ValueError(f"{section}.config.model_type is {kind!r}, which transformers does not know") from None
    for key in settings:
        if not hasattr(default_config, key):  # transformers accepts misspelled keys without effect
            near = difflib.get_close_matches(key, default_config.to_dict(), n=1)
            raise ValueError(
                f"{section}.config.{key}: {kind} has no such setting" + (f"; did you mean {near[0]}?" if near else "")
            )
        # transformers accepts a size of 0 or 1.5, and fails later in a layer with a message about shapes.
        is_size = key.startswith("num_") or key.endswith("_size")
        if (
            is_size
            and type(getattr(default_config, key)) is int
            and (type(settings[key]) is not int or settings[key] < 1)
        ):
            raise ValueError(f"{section}.config.{key} must be a whole number of at least 1, got {settings[key]}")
    return build(section, AutoConfig.for_model, kind, **settings, **own)


def build(section: str, function: Callable[..., T], *args: object, **options: object) -> T:
    """Call a function of transformers that builds what the section's `config` describes.

    Raises:
        ValueError: the settings do not fit together; transformers raises errors of many types.
    """
    try:
        return function(*args, **options)
    except Exception as error:
        # Too large a model is not a contradiction of settings; the handler of OOM errors gives advice.
        if is_oom_error(error):
            raise
        reason = " ".join(str(error).split())[:200]
        raise ValueError(f"{section}.config: transformers cannot build this model: {reason}") from error


def require_local_files(section: str, path: str) -> None:
    """Raise ValueError if a path is a directory's and the directory does not exist or holds no model."""
    folder = Path(path).expanduser()
    if folder.is_dir():
        lacking = [] if (folder / "config.json").is_file() else ["config.json"]
        if not any(any(folder.glob(pattern)) for pattern in _WEIGHTS):
            lacking.append("weights (*.safetensors)")
        if lacking:
            raise ValueError(
                f"{section}.path: {path} has no {' and no '.join(lacking)}; "
                "expected a directory that save_pretrained of transformers wrote"
            )
    elif folder.is_absolute() or path.startswith((".", "~")) or path.count("/") > 1:
        raise ValueError(f"{section}.path: there is no directory {path}")


def read_pretrained(section: str, auto: Any, path: str, **options: Any) -> Any:
    """Call `auto.from_pretrained` for a directory, the cache or the hub, without waiting for an unreachable hub.

    Raises:
        ValueError: the model is not found or cannot be loaded; the message states what to do.
    """
    from safetensors import SafetensorError
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # the bars of several ranks overwrite each other
    local = Path(path).expanduser()
    # Code of a model's repository is never run, whatever a caller passes.
    options["trust_remote_code"] = False
    try:
        if local.is_dir():
            return auto.from_pretrained(str(local), local_files_only=True, **options)
        if hub_unreachable_reason():  # otherwise the cache is tried after half a minute of retries
            options["local_files_only"] = True
        return auto.from_pretrained(path, **options)
    except (OSError, ImportError, ValueError, RuntimeError, SafetensorError) as error:
        # The first line states the cause; transformers' advice after it does not fit a machine without a network.
        reason = first_line(error)
        if local.is_dir():
            raise ValueError(f"{section}.path: {path} cannot be loaded: {reason}") from error
        raise ValueError(
            f"{section}.path: {path} is neither a local directory nor in the cache nor available from the hub: "
            f"{hub_unreachable_reason() or reason}. Download it where there is a network "
            f"(hf download {path} --local-dir DIR) and set {section}.path to DIR"
        ) from error


def switch_off_dropout(config: "PretrainedConfig") -> None:
    """Set all dropout rates to 0, for a frozen model that stays in training mode."""
    for key, value in config.to_dict().items():
        # Keys differ by architecture: attention_dropout, hidden_dropout_prob, drop_path_rate and so on.
        if "drop" in key and isinstance(value, float):
            setattr(config, key, 0.0)


def preview_names(names: Iterable[str]) -> str:
    """Return the first three names of weights, and the number of the others."""
    ordered = sorted(names)
    return ", ".join(ordered[:3]) + (f" and {len(ordered) - 3} more weights" if len(ordered) > 3 else "")
