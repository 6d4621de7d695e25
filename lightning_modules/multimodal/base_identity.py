"""Names the pretrained model that a checkpoint was trained on, so that it is not loaded over another one.

That frozen weights are equal to the bit is checked by engine.frozen_weights; here is what the user can be told: which
model it was, and what of it is another.
"""

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lightning_modules.multimodal.language_model_settings import LanguageModelSettings
from lightning_modules.multimodal.vision_tower_settings import VisionTowerSettings

_MAY_CHANGE = ("_name_or_path", "dtype", "torch_dtype", "transformers_version", "use_cache")
_BLOB = re.compile(r"[0-9a-f]{64}")
_CHUNK = 1 << 22  # bytes


def base_identity(settings: LanguageModelSettings, tokenizer: str) -> dict[str, Any]:
    """Name, architecture, weights, adapters and tokenizer of the language model, as strings, numbers and None alone.

    Reads the files with the weights once, about a second per GB and core; of a model from the hub their hashes are
    known. Needs no network: the model has been loaded.

    Args:
        tokenizer: what identifies the tokenizer.
    """
    adapters = {key: value for key, value in asdict(settings.lora).items() if key != "dropout"}
    return {
        **_network_identity(settings.path, settings.config, settings.trainable == "full"),
        "lora": json.dumps(adapters, sort_keys=True) if settings.trainable == "lora" else None,
        "tokenizer": tokenizer,
    }


def tower_identity(settings: VisionTowerSettings) -> dict[str, Any]:
    """Name, architecture and weights of the vision tower, in the same way."""
    used = {"feature_layer": settings.feature_layer, "first_patch_only": settings.first_patch_only}
    return _network_identity(settings.path, settings.config, settings.trainable == "full", **used)


def weights_identity(path: str | None) -> str | None:
    """The hash of a pretrained model's weights, in whatever format they are used; None of one from a config."""
    return None if path is None else _hash_of_weights(folder_of(path))


def _network_identity(path: str | None, config: Mapping[str, Any] | None, whole: bool, **used: Any) -> dict[str, Any]:
    if path is not None:
        config = json.loads((folder_of(path) / "config.json").read_text(encoding="utf-8"))
    config = config or {}
    bound = {key: value for key, value in config.items() if key not in _MAY_CHANGE} | used
    return {
        "name": path or f"random {config.get('model_type')}",
        "architecture": hashlib.sha256(json.dumps(bound, sort_keys=True).encode()).hexdigest(),
        # Where all weights train, the checkpoint holds them all, whatever they began as.
        "weights": None if whole else weights_identity(path),
    }


def differences(saved: Mapping[str, Any], own: Mapping[str, Any], keys: Iterable[str]) -> str:
    """What of two identities is not the same, with both values; nothing where all is."""
    others = [key for key in keys if saved.get(key) != own[key]]
    return "; ".join(f"{key} {_short(saved.get(key))}, here {_short(own[key])}" for key in others)


def check_base(saved: Mapping[str, Any] | None, own: Mapping[str, Any]) -> None:
    """Raises ValueError when a checkpoint was trained on another language model than the configured one."""
    if saved is None:
        raise ValueError("the checkpoint does not say which language model it was trained on; it is of another family")
    figures = differences(saved, own, [key for key in own if key != "name"])
    if figures:
        raise ValueError(
            f"the checkpoint was trained on the language model {saved.get('name')}, the config has {own['name']}, and "
            f"these differ: {figures}. Set model.init_args.language_model (and data.init_args.tokenizer) to what the "
            "checkpoint was trained with, or train anew under another --run_name"
        )


def folder_of(path: str) -> Path:
    """The files of a language model that has been loaded, by its local directory or its name on the hub."""
    local = Path(path).expanduser()
    if local.is_dir():
        return local
    from huggingface_hub import snapshot_download

    return Path(snapshot_download(path, local_files_only=True))


def _hash_of_weights(folder: Path) -> str:
    files = sorted(folder.glob("*.safetensors")) or sorted(folder.glob("*.bin"))
    with ThreadPoolExecutor(4) as threads:  # hashing lets other threads run
        hashes = list(threads.map(_sha256, files))
    named = [f"{file.name} {sha256}" for file, sha256 in zip(files, hashes, strict=True)]
    return hashlib.sha256("\n".join(named).encode()).hexdigest()


def _sha256(file: Path) -> str:
    blob = file.resolve().name  # in the hub's cache, files are links to blobs that are named by their hash
    if file.is_symlink() and _BLOB.fullmatch(blob):
        return blob
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


def _short(value: Any) -> str:
    text = str(value)
    return text[:12] if _BLOB.fullmatch(text) else text
