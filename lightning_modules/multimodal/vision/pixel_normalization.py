"""Reads how a pretrained vision transformer normalizes pixels."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from engine.system.hf_hub import hub_unreachable_reason
from lightning_modules.multimodal.vision.architectures import KINDS
from lightning_modules.multimodal.vision.settings import VisionTowerSettings

if TYPE_CHECKING:
    from transformers import PretrainedConfig


class PixelNormalization(NamedTuple):
    """(pixel * scale - mean) / deviation of each channel, for pixels from 0 to 255."""

    scale: float
    mean: tuple[float, ...]
    deviation: tuple[float, ...]


def pixel_normalization(settings: VisionTowerSettings, config: "PretrainedConfig") -> PixelNormalization:
    """Return the normalization from the file beside the weights, else the architecture's default."""
    mean, deviation = KINDS[config.model_type].pixel_statistics
    settings_of_file = _preprocessor(settings.path) if settings.path is not None else {}
    # A preprocessor without normalization gives the tower its pixels as they are.
    if not settings_of_file.get("do_normalize", True):
        mean, deviation = (0.0,) * 3, (1.0,) * 3
    rescaled = settings_of_file.get("do_rescale", True)
    scale = settings_of_file.get("rescale_factor", 1 / 255) if rescaled else 1.0
    mean, deviation = settings_of_file.get("image_mean") or mean, settings_of_file.get("image_std") or deviation
    return PixelNormalization(scale, tuple(mean), tuple(deviation))


def _preprocessor(path: str) -> dict[str, Any]:
    local = Path(path).expanduser()
    for name in ("preprocessor_config.json", "processor_config.json"):
        file = local / name if local.is_dir() else _hub_file(path, name)
        if file is not None and file.is_file():
            # A processor of images and text nests the settings of its image processor.
            content = json.loads(file.read_text(encoding="utf-8"))
            return content.get("image_processor", content)
    return {}


def _hub_file(path: str, name: str) -> Path | None:
    from transformers.utils import cached_file

    file = cached_file(
        path,
        name,
        local_files_only=hub_unreachable_reason() is not None,
        # The file is optional: the architecture's defaults replace it.
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if file is None else Path(file)
