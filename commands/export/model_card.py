"""Writes the model card of an export: the README.md that the Hugging Face hub reads."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from commands.runs.provenance import TrainingProvenance
from engine.export.artifacts import DatasetCard, ExportedModel
from engine.io.checksum_file import CHECKSUM_FILE
from engine.system.installation import PROGRAM

MODEL_CARD = "README.md"
"""Name of the file, which every export has."""

_BASELINE = "baseline/"
_STAGES = {"val": "validation", "test": "test"}
_TRAINER_KEYS = (
    "max_epochs", "max_steps", "precision", "gradient_clip_val",
    "limit_val_batches", "limit_test_batches", "overfit_batches",
)  # fmt: skip
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def write_card(
    directory: Path, name: str, exported: ExportedModel, data: DatasetCard, training: TrainingProvenance
) -> None:
    """Write README.md.

    Args:
        directory: the export; all other files are in it already.
        name: name of the model.
        exported: the files of the export and how they are used.
        data: the training data and their license.
        training: the training of the checkpoint.
    """
    front = yaml.safe_dump(_front_matter(name, exported, data, training), sort_keys=False, allow_unicode=True)
    unchecked = "The files have not been loaded after they were written; the weights are the checkpoint's."
    sections = {
        "How to use it": exported.usage,
        "Files": _files(directory, exported.files),
        "Checked": exported.checked or unchecked,
        "Data": f"{data.name}. {data.content}",
        "Metrics": _metrics(training),
        "Training": _training(training),
        "License": _license(exported, data),
    }
    parts = [f"# {name}: {exported.title}", exported.content]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items()]
    text = f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"
    (directory / MODEL_CARD).write_text(text, encoding="utf-8")


def _front_matter(
    name: str, exported: ExportedModel, data: DatasetCard, training: TrainingProvenance
) -> dict[str, Any]:
    """Return the keys of https://huggingface.co/docs/hub/model-cards."""
    # A relative path may have the form of a name on the hub.
    on_hub = [base for base in exported.pretrained if _HUB_NAME.fullmatch(base) and not Path(base).exists()]
    front: dict[str, Any] = {"library_name": exported.library, "license": "unknown"}
    if exported.pipeline is not None:
        front["pipeline_tag"] = exported.pipeline
    if on_hub:
        front["base_model"] = on_hub
    front["tags"] = ["lockstep", *exported.tags]
    # A baseline is a result of the data, not of this model.
    metrics = {key: value for key, value in training.metrics.items() if _BASELINE not in key}
    if metrics:
        results = [_result(stage, metrics, exported, data) for stage in _stages(metrics)]
        front["model-index"] = [{"name": name, "results": results}]
    return front


def _result(stage: str, metrics: Mapping[str, float], exported: ExportedModel, data: DatasetCard) -> dict[str, Any]:
    name = re.sub(r"\W+", "-", data.name.lower()).strip("-")
    values = [
        {"type": key.split("/", 1)[1], "value": round(value, 6)}
        for key, value in metrics.items()
        if key.startswith(f"{stage}/")
    ]
    dataset = {"name": data.name, "type": name, "split": _STAGES[stage]}
    return {"task": {"type": exported.pipeline or "other"}, "dataset": dataset, "metrics": values}


def _stages(metrics: Mapping[str, float]) -> list[str]:
    return [stage for stage in _STAGES if any(key.startswith(f"{stage}/") for key in metrics)]


def _files(directory: Path, descriptions: Mapping[str, str]) -> str:
    descriptions = {**descriptions, CHECKSUM_FILE: f"SHA-256 of the other files: `sha256sum --check {CHECKSUM_FILE}`"}
    rows = []
    for path in sorted(path for path in directory.rglob("*") if path.is_file()):
        name = path.relative_to(directory).as_posix()
        rows.append(f"| `{name}` | {_format_size(path.stat().st_size)} | {descriptions.get(name, '')} |")
    return "\n".join(["| file | size | content |", "|---|---|---|", *rows])


def _format_size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size} bytes"
        size /= 1000
    return f"{size:.3g} GB"


def _metrics(training: TrainingProvenance) -> str:
    """Return a table with a row for each metric, and columns for validation and test."""
    excluded = "".join(
        f"\n\nThe {_STAGES[stage]} metrics of this checkpoint are excluded: they were computed with settings that are "
        f"not the run's ({keys})."
        for stage, keys in training.excluded.items()
    )
    if not training.metrics:
        return (
            "None: the run's `metrics.jsonl` has no evaluation of this checkpoint with the run's settings. "
            f"Run `{PROGRAM} test --run_name NAME`, then export again.{excluded}"
        )
    stages = _stages(training.metrics)
    names = list(dict.fromkeys(key.split("/", 1)[1] for key in training.metrics))
    # The sort is stable: baselines follow the model's metrics, and both keep their order.
    names.sort(key=lambda name: name.startswith(_BASELINE))
    rows = [f"| metric | {' | '.join(_STAGES[stage] for stage in stages)} |", "|---|" + "---|" * len(stages)]
    for name in names:
        values = (training.metrics.get(f"{stage}/{name}") for stage in stages)
        rows.append(f"| {name} | " + " | ".join("" if value is None else f"{value:.4g}" for value in values) + " |")
    note = "Metrics of this checkpoint, from the run's `metrics.jsonl`."
    if "test" not in stages and "test" not in training.excluded:
        note += f" The checkpoint has not been tested; `{PROGRAM} test` does it."
    return "\n".join([note, "", *rows]) + excluded


def _training(training: TrainingProvenance) -> str:
    environment = training.environment
    packages = environment.get("packages") or {}
    versions = {"Lockstep": training.lockstep, **{name: packages[name] for name in packages if name != "lockstep"}}
    lines = [f"- checkpoint after {training.step:,} optimizer steps, in epoch {training.epoch}"]
    if environment:
        ranks, device, precision = (environment.get(key, "unknown") for key in ("processes", "device", "precision"))
        lines.append(f"- world size {ranks} on {device}, precision {precision}")
        lines.append(f"- Lockstep at commit {environment.get('commit') or 'unknown'}")
    lines.append("- versions: " + ", ".join(f"{name} {version}" for name, version in versions.items() if version))
    config = training.config
    if not config:
        return "\n".join(lines)
    shown: dict[str, Any] = {key: config[key] for key in ("seed_everything", "model", "data") if key in config}
    trainer = config.get("trainer") or {}
    shown["trainer"] = {key: trainer[key] for key in _TRAINER_KEYS if trainer.get(key)}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, "", "Configuration:", "", "```yaml", text.rstrip(), "```"])


def _license(exported: ExportedModel, data: DatasetCard) -> str:
    lines = [
        "No license has been chosen for these weights (`license: unknown` above). To publish them, choose one that "
        "the licenses of their sources allow:",
        "",
        f"- data, {data.name}: {data.license}",
    ]
    for name, license in exported.pretrained.items():
        stated = f"its own files state `{license}`" if license else "its own files state none; check its source"
        lines.append(f"- pretrained model {name}: {stated}")
    return "\n".join(lines)
