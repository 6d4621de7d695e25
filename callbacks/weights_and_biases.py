"""Weights & Biases' record of a run, beside TensorBoard's."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.fabric.loggers.logger import _DummyExperiment, rank_zero_experiment
from lightning.pytorch.loggers import WandbLogger
from numpy.typing import NDArray

from callbacks.tracker import FINISH_PATIENCE, Tracker

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class WandbSettings:
    """Weights & Biases, beside TensorBoard.

    Args:
        project: the W&B project in which the run is recorded; null: W&B is not used.
        name: what the run is called there; null: the name of its folder.
        mode: `offline` writes into runs/NAME/wandb, which `wandb sync` uploads some time; `online` uploads at once, and needs a network and `wandb login`.
        entity: the user or team to whom the project belongs; null: yourself.
    """  # noqa: E501

    project: str | None = None
    name: str | None = None
    mode: Literal["offline", "online"] = "offline"
    entity: str | None = None


class WeightsAndBiases(Tracker, WandbLogger):
    """Lightning's, with all files in the run's folder, and one W&B run for all starts of a run.

    Args:
        settings: with a project.
        folder: of the run.
        config: of the run, shown beside its figures.

    Raises:
        ValueError: wandb is not installed.
    """

    PROGRAM, KEY = "W&B", "wandb"

    def __init__(self, settings: WandbSettings, folder: Path, config: Mapping[str, Any]) -> None:
        self.settings, self.folder, self.run_config = settings, folder, config
        online = {"resume": "allow"} if settings.mode == "online" else {"resume": None}  # offline it is done by sync
        try:
            super().__init__(
                project=settings.project, name=settings.name or folder.name, save_dir=folder, mode=settings.mode,
                entity=settings.entity, **online,
            )  # fmt: skip
        except ModuleNotFoundError as error:
            raise ValueError(
                f"wandb.project is {settings.project}, but wandb is not installed: pip install -e '.[wandb]'"
            ) from error
        del self._wandb_init["anonymous"]  # W&B warns of it, even when it is None

    def _open(self, run_id: str | None) -> str:
        import wandb

        run_id = self._wandb_init["id"] = run_id or uuid.uuid4().hex[:12]
        (self.folder / "wandb").mkdir(parents=True, exist_ok=True)  # else W&B takes a folder elsewhere
        # What is printed is in train.log already; of the program's own text W&B keeps nothing.
        self._wandb_init["settings"] = wandb.Settings(
            console="off", silent=True, save_code=False, disable_git=True,
            finish_timeout=FINISH_PATIENCE, finish_timeout_raises=False,
        )  # fmt: skip
        run_id = self.experiment.id
        where = "uploading" if self.settings.mode == "online" else f"wandb sync {self.folder}/wandb/offline-run-*"
        log.info("W&B: project %s, run %s; %s", self.settings.project, run_id, where)
        return run_id

    def _tell_config(self) -> None:
        self.experiment.config.update(dict(self.run_config), allow_val_change=True)

    def _remedy(self, error: Exception) -> str | None:
        import wandb

        remedy = "Log in with `wandb login`, or record without a network: --wandb.mode offline"
        return remedy if isinstance(error, wandb.Error) else None

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if not self._begun or self._ended:
            return _DummyExperiment()
        return WandbLogger.experiment.fget(self)  # type: ignore[attr-defined]

    def _record(self, metrics: Mapping[str, float], step: int) -> None:
        WandbLogger.log_metrics(self, metrics, step)

    def _record_picture(self, name: str, picture: NDArray[np.uint8], step: int) -> None:
        import wandb

        self._record({name: wandb.Image(picture)}, step)

    def _close(self, status: str) -> None:
        if self._experiment is None:
            return
        import wandb

        self._experiment.finish(exit_code=0 if status == "success" else 1)
        wandb.teardown()  # its process would wait for ours to end
