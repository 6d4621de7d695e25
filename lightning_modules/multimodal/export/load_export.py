"""Reads the weights of an export into the networks of a module, so that it answers with what other programs get."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from torch import nn

from lightning_modules.multimodal.export.image_text_export import ImageTextSource, choose_target
from lightning_modules.multimodal.export.llava_target import Llava, LlavaNext
from lightning_modules.multimodal.export.parts_export import MODALITY, ModuleInParts
from lightning_modules.multimodal.export.vision_weights import own_weights
from lightning_modules.multimodal.language.language_model import LanguageModel
from lightning_modules.multimodal.language.transformers_loading import preview_names, read_pretrained
from lightning_modules.multimodal.vision.vision_tower import VisionTower

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_ADAPTERS = "adapter_model.safetensors"


def load_parts(module: ModuleInParts, folder: Path) -> None:
    """Read what `export_parts` has written.

    Args:
        module: module whose networks are built.
        folder: directory of the export.

    Raises:
        ValueError: the export is of another model.
        FileNotFoundError: a file is missing.
    """
    from safetensors.torch import load_model

    settings = json.loads((folder / MODALITY / "settings.json").read_text(encoding="utf-8"))
    found, expected = settings["encoder"]["class"], type(module.encoder).__name__
    if found != expected:
        raise ValueError(f"{folder}: found an export with {found}, expected {expected}; give an export of this run")
    if has_adapters(folder):
        load_adapters(module.language_model, folder)
    elif (folder / "config.json").is_file():
        from transformers import AutoModelForCausalLM

        exported = read_pretrained("export", AutoModelForCausalLM, str(folder), dtype="auto")
        # dtype "auto" reads the stored format; the copy casts to the module's, as in training.
        _copy(folder, exported, merged_language_model(module))
    for name, network in module.export_networks().items():
        try:
            load_model(network, folder / MODALITY / f"{name}.safetensors")
        except RuntimeError as error:
            raise ValueError(f"{folder}/{MODALITY}/{name}.safetensors does not fit the run: {error}") from error


def has_adapters(folder: Path) -> bool:
    """Return whether an export has adapters to a language model, and not the model."""
    return (folder / _ADAPTERS).is_file()


def load_adapters(model: LanguageModel, folder: Path) -> None:
    """Read the adapters of an export into a language model that has such adapters.

    Raises:
        ValueError: the export has others, or the model has none.
    """
    from peft import set_peft_model_state_dict
    from safetensors.torch import load_file

    if model.settings.trainable != "lora":
        raise ValueError(f"{folder}: found adapters, and the run has trained none; give an export of this run")
    # peft removed the adapter's name from the stored keys; this adds it again.
    result: Any = set_peft_model_state_dict(model.adapted, load_file(folder / _ADAPTERS))
    _require_all(folder, [], result.unexpected_keys)


def load_image_text(module: ImageTextSource, folder: Path) -> None:
    """Read what `export_image_text` has written as a class of LLaVA.

    Args:
        module: module whose networks are built.
        folder: directory of the export.

    Raises:
        ValueError: the folder has another class, or weights that do not fit the module.
    """
    from transformers import AutoModelForImageTextToText

    target = choose_target(module.image_layout, module.projector)
    if not isinstance(target, Llava):
        raise ValueError(f"{folder}: exports as {target.class_name} are not read; give a checkpoint of the run")
    exported = read_pretrained("export", AutoModelForImageTextToText, str(folder), dtype="auto")
    if type(exported).__name__ != target.class_name:
        raise ValueError(f"{folder}: found a {type(exported).__name__}, expected a {target.class_name} of this run")
    causal = merged_language_model(module)
    linear = [layer for layer in module.projector.layers if isinstance(layer, nn.Linear)]
    projector = exported.model.multi_modal_projector
    for source, own in (
        (exported.model.language_model, causal.get_decoder()),
        (exported.lm_head, causal.get_output_embeddings()),
        (projector.linear_1, linear[0]),
        (projector.linear_2, linear[1]),
    ):
        _copy(folder, source, own)
    tower = cast(VisionTower, module.encoder)
    # transformers also builds weights of the tower that its features do not depend on.
    result = tower.network.load_state_dict(own_weights(tower, exported.model.vision_tower.state_dict()), strict=False)
    _require_all(folder, result.missing_keys, [])
    if isinstance(target, LlavaNext):
        assert module.places is not None, "the tiling has a learned vector"
        module.places.weight.data[0] = exported.model.image_newline.detach()


def merged_language_model(module: ModuleInParts | ImageTextSource) -> "PreTrainedModel":
    """Return the language model, without adapters and quantized weights: an export has them in its weights."""
    model = module.language_model
    settings = model.settings
    if settings.trainable == "lora" or settings.quantize != "none":
        trainable: Any = "full" if settings.path is None else "none"  # nothing is trained
        plain = replace(settings, trainable=trainable, quantize="none", compile=False)
        # Weights of the export contain the adapters, so they fit a plain model alone.
        module.language_model = LanguageModel(plain, model.vocabulary, model.precision, network=model.merge())
    return module.language_model.causal_lm


def _copy(folder: Path, source: nn.Module, target: nn.Module) -> None:
    """Copy all weights of a network into another of the same architecture."""
    try:
        target.load_state_dict(source.state_dict())
    except RuntimeError as error:
        raise ValueError(f"{folder}: the weights of {type(source).__name__} do not fit the run: {error}") from error


def _require_all(folder: Path, missing: list[str], unexpected: list[str]) -> None:
    if missing or unexpected:
        kind = "lacks" if missing else "has weights that the run does not know:"
        raise ValueError(f"{folder} {kind} {preview_names(missing or unexpected)}; give an export of this run")
