"""Checks that pretrained weights and tokenizers are on this machine, so that a training needs no network."""

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from commands.doctor.check import Finding
from engine.io.name_list import join_names
from engine.system.hf_hub import hub_unreachable_reason

_WHY = "every rank loads it at the start; on nodes without a network the training ends there"


def pretrained_findings(model: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Finding]:
    """Check whether the pretrained weights and the tokenizer of a config are on this machine.

    Args:
        model: `model.init_args` of a config; its groups with a `path` are pretrained. A `path` of its own is that of an
            image-text model.
        data: `data.init_args`.
    """
    if isinstance(model.get("path"), str):
        yield _check_presence("model.init_args.path", model["path"], _missing_weights)
    for name, group in model.items():
        path = group.get("path") if isinstance(group, Mapping) else None
        if isinstance(path, str):
            yield _check_presence(f"model.init_args.{name}.path", path, _missing_weights)
    if isinstance(data.get("tokenizer"), str):
        yield _check_presence("data.init_args.tokenizer", data["tokenizer"], _missing_tokenizer)


def _check_presence(key: str, source: str, find_missing: Any) -> Finding:
    folder = Path(source).expanduser()
    if folder.is_dir():
        missing = find_missing(folder)
        if not missing:
            return Finding("weights", "ok", f"{key}: {source} exists")
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        return Finding(
            "weights", "fail", f"{key}: {source} has no {missing}; found {found}", _WHY,
            "give a complete directory written by save_pretrained of transformers",
        )  # fmt: skip
    if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        remedy = f"set {key} to a directory that exists"
        return Finding("weights", "fail", f"{key}: there is no directory {source}", _WHY, remedy)
    return _check_hub_model(key, source, find_missing)


def _check_hub_model(key: str, name: str, find_missing: Any) -> Finding:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    missing = "anything"
    with suppress(LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError):  # the cache does not hold it
        missing = find_missing(Path(snapshot_download(name, local_files_only=True)))
    if not missing:
        return Finding("weights", "ok", f"{key}: {name} is in {constants.HF_HUB_CACHE}")
    what = f"is not in {constants.HF_HUB_CACHE}" if missing == "anything" else f"has no {missing}"
    here = f"{key}: {name} {what}"
    fetch = f"hf download {name}  # on a machine with a network; then copy {constants.HF_HUB_CACHE} to every node"
    unreachable = hub_unreachable_reason()
    if unreachable:
        return Finding("weights", "fail", f"{here}, and the hub cannot be reached: {unreachable}", _WHY, fetch)
    return Finding("weights", "warn", f"{here}; the first start would download it", _WHY, f"hf download {name}")


def _missing_weights(folder: Path) -> str:
    """Return the name of what is missing; empty if the model is complete. Large models have an index of their files."""
    if not (folder / "config.json").is_file():
        return "config.json"
    for index in [*folder.glob("*.safetensors.index.json"), *folder.glob("*.bin.index.json")]:
        weight_files = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        missing = sorted({name for name in weight_files if not (folder / name).is_file()})
        if missing:
            return join_names(missing, 1) + f", named by {index.name}"
    weights = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return "" if weights else "weights (*.safetensors)"


def _missing_tokenizer(folder: Path) -> str:
    return "" if (folder / "tokenizer.json").is_file() else "tokenizer.json"
