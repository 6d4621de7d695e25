"""Identifies the pretrained models that a checkpoint was trained on, so that it is not loaded over others.

engine.checkpointing.frozen_weights checks that frozen weights are equal to the bit. This module names the model and
what differs.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from engine.checkpointing.checkpoint_schema import declare_part
from engine.checkpointing.schema import MAPPING, optional
from engine.io.file_hash import hash_file
from lightning_modules.multimodal.language.settings import LanguageModelSettings
from lightning_modules.multimodal.vision.settings import VisionTowerSettings

declare_part("base", optional(MAPPING))
declare_part("vision_tower", optional(MAPPING))

_MAY_CHANGE = ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache")
"""Keys of config.json that differ between copies and releases of the same model, and change no result."""

_BLOB = re.compile(r"[0-9a-f]{64}")
"""Name of a large file in the hub's cache: the SHA-256 of its content."""


def base_identity(settings: LanguageModelSettings, tokenizer: str) -> dict[str, Any]:
    """Return name, architecture, weights, adapters and tokenizer of the language model, as strings, numbers and None.

    Hashes the files with the weights, at about a second per GB and core; the hub's cache names them by their hashes.
    Needs no network, because the model has been loaded.

    Args:
        settings: settings of the language model.
        tokenizer: identity of the tokenizer.
    """
    # Dropout has no weights, so a later stage may change it.
    adapters = {key: value for key, value in asdict(settings.lora).items() if key != "dropout"}
    for variant in ("use_rslora", "use_dora"):
        if not adapters[variant]:  # older checkpoints do not have the key
            del adapters[variant]
    return {
        **_network_identity(settings.path, settings.config, settings.trainable == "full"),
        "lora": json.dumps(adapters, sort_keys=True) if settings.trainable == "lora" else None,
        "quantize": _quantization(settings),
        "tokenizer": tokenizer,
    }


def _quantization(settings: LanguageModelSettings) -> str | None:
    if settings.quantize == "none":  # older checkpoints do not have the key
        return None
    return "nf4 double" if settings.quantize == "nf4" and settings.double_quantize else settings.quantize


def tower_identity(settings: VisionTowerSettings) -> dict[str, Any]:
    """Return name, architecture and weights of the vision tower, as `base_identity` does."""
    used = {"feature_layer": settings.feature_layer, "first_patch_only": settings.first_patch_only}
    return _network_identity(settings.path, settings.config, settings.trainable == "full", **used)


def weights_identity(path: str | None) -> str | None:
    """Return the hash of a pretrained model's files with weights, or None without a path."""
    return None if path is None else _hash_of_weights(folder_of(path))


def _network_identity(
    path: str | None, config: Mapping[str, object] | None, whole: bool, **used: object
) -> dict[str, Any]:
    if path is not None:
        config = json.loads((folder_of(path) / "config.json").read_text(encoding="utf-8"))
    config = config or {}
    # Sorted and hashed, because configs differ in order and would be long in a message.
    bound = {key: value for key, value in config.items() if key not in _MAY_CHANGE} | used
    return {
        "name": path or f"random {config.get('model_type')}",
        "architecture": hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest(),
        # If all weights train, the checkpoint holds them all, and their initial values do not matter.
        "weights": None if whole else weights_identity(path),
    }


def describe_differences(saved: Mapping[str, object], own: Mapping[str, object], keys: Iterable[str]) -> str:
    """Return the differing keys of two identities with both values; "" if they are equal."""
    differ = [key for key in keys if saved.get(key) != own[key]]
    return "; ".join(f"{key} {_abbreviate_hash(saved.get(key))}, here {_abbreviate_hash(own[key])}" for key in differ)


def check_base(saved: Mapping[str, object] | None, own: Mapping[str, object]) -> None:
    """Raise ValueError if a checkpoint was trained on a language model other than the configured model."""
    if saved is None:
        raise ValueError("the checkpoint does not name the language model it was trained on; it is of another family")
    problem = describe_differences(saved, own, [key for key in own if key != "name"])
    if problem:
        raise ValueError(
            f"the checkpoint was trained on the language model {saved.get('name')}, the config has {own['name']}, and "
            f"these differ: {problem}. Set model.init_args.language_model (and data.init_args.tokenizer) to what the "
            "checkpoint was trained with, or train anew under another --run_name"
        )


def folder_of(path: str) -> Path:
    """Return the directory of a loaded model, given its local directory or its name on the hub."""
    local = Path(path).expanduser()
    if local.is_dir():
        return local
    # The model has been loaded, so its files are in the cache; a compute node may have no network.
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, local_files_only=True))


def _hash_of_weights(folder: Path) -> str:
    # transformers prefers safetensors where a directory has both.
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    with ThreadPoolExecutor(4) as threads:  # hashing releases the GIL
        hashes = list(threads.map(_sha256, files))
    name_and_hash = [f"{file.name} {sha256}" for file, sha256 in zip(files, hashes, strict=True)]
    return hashlib.sha256("\n".join(name_and_hash).encode()).hexdigest()


def _sha256(file: Path) -> str:
    blob = file.resolve().name  # files of the hub's cache are links to blobs, which are named by their hashes
    if file.is_symlink() and _BLOB.fullmatch(blob):
        return blob
    return hash_file(file)


def _abbreviate_hash(value: object) -> str:
    text = str(value)
    return text[:12] if _BLOB.fullmatch(text) else text
