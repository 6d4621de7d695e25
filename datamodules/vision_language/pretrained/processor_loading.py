"""Loads the processor of a pretrained image-text model from its directory."""

import importlib.util
import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.io.error_line import first_line
from engine.system.extras import MissingPackagesError, require_extras

if TYPE_CHECKING:
    from transformers import ProcessorMixin

_IMAGE_FILES = ("preprocessor_config.json", "processor_config.json")
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json")


def load_processor(path: str, folder: Path, image_settings: Mapping[str, Any]) -> tuple["ProcessorMixin", int]:
    """Load tokenizer, image processor and chat template, and return them with the model's image token.

    Args:
        path: the model's name in the config, for messages.
        folder: the model's files.
        image_settings: settings of the image processor that differ from its files, such as `max_pixels`.

    Raises:
        MissingPackagesError: the processor needs a package of an extra that is not installed.
        ValueError: a file is missing or cannot be read, or the image processor has no such setting.
    """
    from transformers import AutoConfig, AutoProcessor
    from transformers.models.auto.processing_auto import PROCESSOR_MAPPING

    _require_files(path, folder)
    options = {"local_files_only": True, "trust_remote_code": False}
    try:
        config = AutoConfig.from_pretrained(folder, **options)
        if config.model_type == "smolvlm":
            require_extras({"smolvlm": f"the processor of {path}"})
        # The model type's own class, from which the video processor can be removed if torchvision is missing.
        kind: Any = PROCESSOR_MAPPING.get(type(config), AutoProcessor)
        if kind is not AutoProcessor and importlib.util.find_spec("torchvision") is None:
            kind = without_videos(kind)
        processor = kind.from_pretrained(folder, **options)
    except MissingPackagesError:
        raise
    except (OSError, ImportError, ValueError, KeyError, TypeError, AttributeError) as error:
        reason = first_line(error)
        raise ValueError(f"model.init_args.path: the processor of {path} cannot be loaded: {reason}") from error
    _change_image_settings(processor, path, image_settings)
    return processor, config.image_token_id


def without_videos(kind: type["ProcessorMixin"]) -> type["ProcessorMixin"]:
    """Return the class of a processor without its video processor, which transformers builds with torchvision only."""

    def get_attributes(cls: Any) -> list[str]:
        return [name for name in kind.get_attributes() if name != "video_processor"]

    def get_processor_dict(cls: Any, *args: Any, **options: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        settings, others = kind.get_processor_dict(*args, **options)
        return (
            {**settings, "video_processor": None} if "video_processor" in kind.get_attributes() else settings
        ), others

    members = {
        "get_attributes": classmethod(get_attributes),
        "get_processor_dict": classmethod(get_processor_dict),
        "video_processor": None,
    }
    # A subclass, so that the class of transformers itself is not changed.
    return type(kind.__name__, (kind,), members)


def _require_files(path: str, folder: Path) -> None:
    names = {file.name for file in folder.iterdir()}
    lacking = [] if names & {*_TEXT_FILES, "tokenizer.model"} else [_TEXT_FILES[0]]
    if not names & {*_IMAGE_FILES} or not any(_has_image_settings(folder / name) for name in names & {*_IMAGE_FILES}):
        lacking.append(_IMAGE_FILES[0])
    if lacking:
        raise ValueError(
            f"model.init_args.path: {path} has no {' and no '.join(lacking)}, so its processor cannot be loaded; "
            "expected a directory with the model and its processor, as save_pretrained of both writes it"
        )


def _has_image_settings(file: Path) -> bool:
    """Return whether a settings file has settings of an image processor. A processor_config.json may have them."""
    try:
        settings = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file}: not JSON: {error}") from error
    return file.name == _IMAGE_FILES[0] or "image_processor" in settings


def _change_image_settings(processor: Any, path: str, settings: Mapping[str, Any]) -> None:
    images = processor.image_processor
    for key, value in settings.items():
        if not hasattr(images, key):
            settings_list = ", ".join(sorted(key for key in images.to_dict() if not key.endswith("_type")))
            raise ValueError(
                f"model.init_args.image_processor.{key}: the {type(images).__name__} of {path} has no such setting; "
                f"it has {settings_list}"
            )
        setattr(images, key, value)
