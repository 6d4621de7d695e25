"""Whether pretrained weights and tokenizers are on this machine, so that a training needs no network."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from commands.doctor.finding import Finding
from engine.hub import why_unreachable

_WHY = "every process reads it at the start; on nodes without a network the training ends there"


def pretrained_findings(model: Mapping[str, Any], data: Mapping[str, Any]) -> Iterator[Finding]:
    """
    Args:
        model: `model.init_args` of a config; of its groups those with a `path` are pretrained.
        data: `data.init_args`.
    """
    for name, group in model.items():
        path = group.get("path") if isinstance(group, Mapping) else None
        if isinstance(path, str):
            yield _present(f"model.init_args.{name}.path", path, _lacks_weights)
    if isinstance(data.get("tokenizer"), str):
        yield _present("data.init_args.tokenizer", data["tokenizer"], _lacks_tokenizer)


def _present(key: str, source: str, lacks: Any) -> Finding:
    folder = Path(source).expanduser()
    if folder.is_dir():
        lacking = lacks(folder)
        if not lacking:
            return Finding("weights", "ok", f"{key}: {source} is here")
        found = ", ".join(sorted(path.name for path in folder.iterdir())[:8]) or "nothing"
        return Finding(
            "weights", "fail", f"{key}: {source} has no {lacking}; found {found}", _WHY,
            "give a directory that save_pretrained of transformers has written, whole",
        )  # fmt: skip
    if folder.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        remedy = f"set {key} to one that is there"
        return Finding("weights", "fail", f"{key}: there is no directory {source}", _WHY, remedy)
    return _of_hub(key, source, lacks)


def _of_hub(key: str, name: str, lacks: Any) -> Finding:
    from huggingface_hub import constants, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError

    lacking = "anything"
    try:
        lacking = lacks(Path(snapshot_download(name, local_files_only=True)))
    except (LocalEntryNotFoundError, HfHubHTTPError, ValueError, OSError):
        pass  # what the cache does not hold
    if not lacking:
        return Finding("weights", "ok", f"{key}: {name} is in {constants.HF_HUB_CACHE}")
    what = f"is not in {constants.HF_HUB_CACHE}" if lacking == "anything" else f"has no {lacking}"
    here = f"{key}: {name} {what}"
    fetch = f"hf download {name}  # where there is a network, and copy {constants.HF_HUB_CACHE} to every node"
    unreachable = why_unreachable()
    if unreachable:
        return Finding("weights", "fail", f"{here}, and the hub cannot be asked: {unreachable}", _WHY, fetch)
    return Finding("weights", "warn", f"{here}; the first start would download it", _WHY, f"hf download {name}")


def _lacks_weights(folder: Path) -> str:
    """What is missing; nothing if all is there. Large models have an index that names their files."""
    if not (folder / "config.json").is_file():
        return "config.json"
    for index in [*folder.glob("*.safetensors.index.json"), *folder.glob("*.bin.index.json")]:
        named = json.loads(index.read_text(encoding="utf-8"))["weight_map"].values()
        missing = sorted({name for name in named if not (folder / name).is_file()})
        if missing:
            return f"{missing[0]}" + (f" and {len(missing) - 1} more that {index.name} names" if missing[1:] else "")
    there = [*folder.glob("*.safetensors"), *folder.glob("*.bin")]
    return "" if there else "weights (*.safetensors)"


def _lacks_tokenizer(folder: Path) -> str:
    return "" if (folder / "tokenizer.json").is_file() else "tokenizer.json"
