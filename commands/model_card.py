"""The model card beside an export: README.md as the Hugging Face hub reads it, and people do."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from commands.trained_run import Training
from engine.exported import DataDescription, Exported

_BASELINE = "baseline/"
_STAGES = {"val": "validation", "test": "test"}
_OF_THE_TRAINER = (
    "max_epochs", "max_steps", "precision", "gradient_clip_val",
    "limit_val_batches", "limit_test_batches", "overfit_batches",
)  # fmt: skip
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")


def write_card(folder: Path, name: str, exported: Exported, data: DataDescription, training: Training) -> None:
    """Writes README.md.

    Args:
        folder: has all other files of the export.
        name: of the model.
    """
    front = yaml.safe_dump(_front_matter(name, exported, data, training), sort_keys=False, allow_unicode=True)
    sections = {
        "How to use it": exported.usage,
        "Files": _files(folder, exported.files),
        "Checked": exported.checked or "What was written has not been run; the weights are those of the checkpoint.",
        "Data": f"{data.name}. {data.content}",
        "Figures": _figures(training),
        "Training": _training(training),
        "Licence": _licence(exported, data),
    }
    parts = [f"# {name}: {exported.title}", exported.content]
    parts += [f"## {title}\n\n{text}" for title, text in sections.items()]
    text = f"---\n{front}---\n\n" + "\n\n".join(parts) + "\n"
    (folder / "README.md").write_text(text, encoding="utf-8")


def _front_matter(name: str, exported: Exported, data: DataDescription, training: Training) -> dict[str, Any]:
    """Keys of https://huggingface.co/docs/hub/model-cards."""
    on_hub = [other for other in exported.pretrained if _HUB_NAME.fullmatch(other) and not Path(other).exists()]
    front: dict[str, Any] = {"library_name": exported.library, "license": "unknown"}
    if exported.pipeline is not None:
        front["pipeline_tag"] = exported.pipeline
    if on_hub:
        front["base_model"] = on_hub
    front["tags"] = ["lockstep", *exported.tags]
    figures = {key: value for key, value in training.figures.items() if _BASELINE not in key}
    if figures:
        results = [_result(stage, figures, exported, data) for stage in _stages(figures)]
        front["model-index"] = [{"name": name, "results": results}]
    return front


def _result(stage: str, figures: Mapping[str, float], exported: Exported, data: DataDescription) -> dict[str, Any]:
    name = re.sub(r"\W+", "-", data.name.lower()).strip("-")
    metrics = [
        {"type": key.split("/", 1)[1], "value": round(value, 6)}
        for key, value in figures.items()
        if key.startswith(f"{stage}/")
    ]
    dataset = {"name": data.name, "type": name, "split": _STAGES[stage]}
    return {"task": {"type": exported.pipeline or "other"}, "dataset": dataset, "metrics": metrics}


def _stages(figures: Mapping[str, float]) -> list[str]:
    return [stage for stage in _STAGES if any(key.startswith(f"{stage}/") for key in figures)]


def _files(folder: Path, known: Mapping[str, str]) -> str:
    rows = []
    for path in sorted(path for path in folder.rglob("*") if path.is_file()):
        place = path.relative_to(folder).as_posix()
        rows.append(f"| `{place}` | {_size(path.stat().st_size)} | {known.get(place, '')} |")
    return "\n".join(["| file | size | content |", "|---|---|---|", *rows])


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.3g} {unit}" if unit != "bytes" else f"{size} bytes"
        size /= 1000
    return f"{size:.3g} GB"


def _figures(training: Training) -> str:
    """A row a figure, a column for validation and one for test."""
    left_out = "".join(
        f"\n\nThe {_STAGES[stage]} figures of this checkpoint are left out, as they were made with settings that are "
        f"not the run's ({keys})."
        for stage, keys in training.left_out.items()
    )
    if not training.figures:
        return (
            "None: the run's `metrics.jsonl` has no evaluation of this checkpoint with the run's settings. "
            f"`python train.py test --run_name NAME` makes them; export again after it.{left_out}"
        )
    stages = _stages(training.figures)
    names = list(dict.fromkeys(key.split("/", 1)[1] for key in training.figures))
    names.sort(key=lambda name: name.startswith(_BASELINE))
    rows = [f"| figure | {' | '.join(_STAGES[stage] for stage in stages)} |", "|---|" + "---|" * len(stages)]
    for name in names:
        values = (training.figures.get(f"{stage}/{name}") for stage in stages)
        rows.append(f"| {name} | " + " | ".join("" if value is None else f"{value:.4g}" for value in values) + " |")
    note = "Of this very checkpoint, from the run's `metrics.jsonl`."
    if "test" not in stages and "test" not in training.left_out:
        note += " The test set has not been looked at; `python train.py test` does."
    return "\n".join([note, "", *rows]) + left_out


def _training(training: Training) -> str:
    facts = training.environment
    versions = {"Lockstep": training.lockstep, **(facts.get("packages") or {})}
    lines = [f"- checkpoint after {training.step:,} optimizer steps, in epoch {training.epoch}"]
    if facts:
        lines.append(f"- {facts['processes']} process(es) on {facts['device']}, precision {facts['precision']}")
        lines.append(f"- Lockstep at commit {facts.get('commit') or 'unknown'}")
    lines.append("- versions: " + ", ".join(f"{name} {found}" for name, found in versions.items() if found))
    config = training.config
    if not config:
        return "\n".join(lines)
    shown = {key: config[key] for key in ("seed_everything", "model", "data") if key in config}
    trainer = config.get("trainer") or {}
    shown["trainer"] = {key: trainer[key] for key in _OF_THE_TRAINER if trainer.get(key)}
    text = yaml.safe_dump(shown, sort_keys=False, allow_unicode=True)
    return "\n".join([*lines, "", "Configuration:", "", "```yaml", text.rstrip(), "```"])


def _licence(exported: Exported, data: DataDescription) -> str:
    lines = [
        "No licence has been chosen for these weights (`license: unknown` above); whoever publishes them chooses one "
        "that what they are made from allows:",
        "",
        f"- data, {data.name}: {data.licence}",
    ]
    for name, licence in exported.pretrained.items():
        stated = f"its own files state `{licence}`" if licence else "its own files state none; see where it comes from"
        lines.append(f"- pretrained model {name}: {stated}")
    return "\n".join(lines)
