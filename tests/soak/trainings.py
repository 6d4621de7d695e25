"""Short trainings of all five families, with everything random switched on."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.conftest import REPOSITORY, TINY
from tests.support.families import colored_squares, tiny_documents
from tests.support.families.tiny_temporal import TINY_TEMPORAL

LIMITS = ["--watchdog.timeout", "10", "--watchdog.start_timeout", "40", "--preemption.check_every_n_steps", "2"]
"""Options of every training: a process that hangs is found within these seconds."""

_BATCH = ["--data.init_args.batch_size", "18"]  # splits over 2 and 3 processes

ASYNCHRONOUS = ["--checkpoints.asynchronous", "true"]


class Training(NamedTuple):
    """A training that is killed.

    Attributes:
        family: of the five families.
        processes: world size.
        steps: optimizer steps of an undisturbed run.
        options: returns its command-line options and writes its config into a folder.
        variant: what differs from the family's plain training; empty for the plain.
        launcher: `torchrun` or `lightning` for a run of its own launcher; None: forked from a preloaded process.
    """

    family: str
    processes: int
    steps: int
    options: Callable[[Path], list[str]]
    variant: str = ""
    launcher: str | None = None

    @property
    def name(self) -> str:
        return "-".join(filter(None, (self.family, f"{self.processes}p", self.variant, self.launcher)))


def _recommender(folder: Path) -> list[str]:
    return [*TINY, *_BATCH, "--model.init_args.dropout", "0.2", *_steps(30), "--last_checkpoint.every_n_steps", "5"]


def _image_classifier(folder: Path) -> list[str]:
    return [
        "--config",
        str(REPOSITORY / "configs/image_classifier/digits.yaml"),
        "--model.init_args.width=8",
        "--model.init_args.norm=group",
        "--model.init_args.ema_decay=0.8",
        "--model.init_args.warmup_steps=3",
        "--data.init_args.batch_size=48",
        "--data.init_args.flip=true",
        "--data.init_args.mixup=0.4",
        "--trainer.limit_train_batches=10",
        "--trainer.check_val_every_n_epoch=1",
        "--trainer.log_every_n_steps=1",
        "--trainer.enable_progress_bar=false",
        "--trainer.accelerator=cpu",
        *_steps(20),
        "--last_checkpoint.every_n_steps=4",
    ]


def _temporal(folder: Path) -> list[str]:
    dropout = ["--model.init_args.encoder_dropout", "0.2", "--model.init_args.language_model.config.attention_dropout"]
    return [*TINY_TEMPORAL, *_BATCH, *dropout, "0.1", *_steps(16), "--last_checkpoint.every_n_steps", "3"]


def _document_qa(folder: Path) -> list[str]:
    data = {
        "size": 40,
        "batch_size": 6,
        "micro_batch_size": 1,
        "evaluation_batch_size": 5,
        "option_orders": 2,
        "questions_per_chat": 1,
        "packed_length": 400,
        "retriever": {"kind": "oracle"},
    }
    return [*tiny_documents.write_config(folder), *_more(folder, data), *_steps(16)]


def _vision_language(folder: Path) -> list[str]:
    data = {"num_samples": 60, "batch_size": 12, "evaluation_batch_size": 12, "images": [0, 2, 1]}
    return [*colored_squares.write_config(folder), *_more(folder, data), *_steps(20)]


def _sharded(folder: Path) -> list[str]:
    settings = {"class_path": "tests.support.ranks.sharded_on_cpu.ShardedOnCPU"}
    settings |= {"init_args": {"state_dict_type": "sharded"}}  # type: ignore[dict-item]
    # A checkpoint of shards is not replaced in one step, so the previous checkpoint is kept.
    kept: dict[str, object] = {"last_checkpoint": {"keep": 2}, "best_checkpoint": {"keep": 2}}
    content = {"trainer": {"strategy": settings}, "checkpoints": {"trainable_only": False}, **kept}
    path = folder / "sharded.yaml"
    path.write_text(yaml.safe_dump(content))
    return [*_vision_language(folder), "--config", str(path)]


def _steps(number: int) -> list[str]:
    return ["--trainer.max_epochs", "-1", "--trainer.max_steps", str(number)]


def _more(folder: Path, data: dict[str, object]) -> list[str]:
    path = folder / "more.yaml"
    path.write_text(yaml.safe_dump({"data": {"init_args": data}, "last_checkpoint": {"every_n_steps": 3}}))
    return ["--config", str(path)]


_FAMILIES: dict[str, tuple[Callable[[Path], list[str]], int]] = {
    "recommender": (_recommender, 30),
    "image_classifier": (_image_classifier, 20),
    "temporal": (_temporal, 16),
    "document_qa": (_document_qa, 16),
    "vision_language": (_vision_language, 20),
}


def trainings() -> list[Training]:
    """Return all trainings: each family with 1, 2 and 3 processes, asynchronous checkpoints, shards and launchers."""
    found = [
        Training(family, processes, steps, options)
        for family, (options, steps) in _FAMILIES.items()
        for processes in (1, 2, 3)
    ]
    for family, (options, steps) in _FAMILIES.items():
        found.append(Training(family, 2, steps, _with(options, ASYNCHRONOUS), "asynchronous"))
    found.append(Training("vision_language", 2, 20, _sharded, "sharded"))
    for launcher in ("torchrun", "lightning"):
        found.append(Training("recommender", 2, 30, _recommender, launcher=launcher))
    return found


def _with(options: Callable[[Path], list[str]], more: list[str]) -> Callable[[Path], list[str]]:
    return lambda folder: [*options(folder), *more]
