"""Records a run in Weights & Biases."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers import WandbLogger
from numpy.typing import NDArray
from typing_extensions import override

from callbacks.trackers.experiment_tracker import FINISH_TIMEOUT, ExperimentTracker
from engine.lightning_internals.loggers import NullExperiment, wandb_arguments

log = logging.getLogger("lockstep")


@dataclass(frozen=True)
class WandbSettings:
    """Settings of Weights & Biases, which records beside TensorBoard.

    Args:
        project: W&B project of the run; null turns W&B off.
        name: name of the run in W&B; null: the name of its folder.
        mode: `offline` writes to runs/NAME/wandb, for a later `wandb sync`; `online` uploads at once and needs a
            network and `wandb login`.
        entity: user or team that owns the project; null: the logged-in user.
    """

    project: str | None = None
    name: str | None = None
    mode: Literal["offline", "online"] = "offline"
    entity: str | None = None


class WeightsAndBiases(ExperimentTracker, WandbLogger):
    """Lightning's WandbLogger with all files in the run's folder and one W&B run for all starts of a run.

    Args:
        settings: settings with a project.
        folder: folder of the run.
        config: config of the run, recorded beside its metrics.
    """

    PROGRAM, KEY, ENABLED_BY = "W&B", "wandb", "project"

    _is_open = False  # whether W&B has started a run in this process

    def __init__(self, settings: WandbSettings, folder: Path, config: Mapping[str, Any]) -> None:
        self.settings, self.folder, self.run_config = settings, folder, config
        # Offline, `wandb sync` merges the starts by their id, and W&B refuses `resume`.
        resume: dict[str, Any] = {"resume": "allow" if settings.mode == "online" else None}
        super().__init__(
            project=settings.project,
            name=settings.name or folder.name,
            save_dir=folder,
            mode=settings.mode,
            entity=settings.entity,
            **resume,
        )
        del wandb_arguments(self)["anonymous"]  # W&B warns of the argument even if it is None

    def _open_run(self, run_id: str | None) -> str:
        import wandb

        arguments = wandb_arguments(self)
        # An id of our own: offline W&B knows no run to continue, and merges starts by it.
        arguments["id"] = run_id or uuid.uuid4().hex[:12]
        (self.folder / "wandb").mkdir(parents=True, exist_ok=True)  # W&B uses a temporary folder if it does not exist
        # train.log has the console output already. W&B stores none of the program's source.
        arguments["settings"] = wandb.Settings(
            console="off",
            silent=True,
            save_code=False,
            disable_git=True,
            finish_timeout=FINISH_TIMEOUT,
            finish_timeout_raises=False,
        )
        opened: str = self.experiment.id
        self._is_open = True
        upload = "uploading" if self.settings.mode == "online" else f"wandb sync {self.folder}/wandb/offline-run-*"
        log.info("W&B: project %s, run %s; %s", self.settings.project, opened, upload)
        return opened

    def _log_config(self) -> None:
        # A resumed run may have other settings, which W&B refuses by default.
        self.experiment.config.update(dict(self.run_config), allow_val_change=True)

    def _remedy(self, error: Exception) -> str | None:
        import wandb

        remedy = "Log in with `wandb login`, or record without a network: --wandb.mode offline"
        return remedy if isinstance(error, wandb.Error) else None

    @property
    @rank_zero_experiment
    @override
    def experiment(self) -> Any:
        if not self._started or self._ended:
            return NullExperiment()
        return super().experiment

    def _log_metrics(self, metrics: Mapping[str, Any], step: int) -> None:
        # `log_metrics` itself is ExperimentTracker's, which catches the errors of this call.
        WandbLogger.log_metrics(self, metrics, step)

    def _log_image(self, name: str, image: NDArray[np.uint8], step: int) -> None:
        import wandb

        self._log_metrics({name: wandb.Image(image)}, step)

    def _close_run(self, status: str) -> None:
        if not self._is_open:
            return
        import wandb

        super().experiment.finish(exit_code=0 if status == "success" else 1)
        wandb.teardown()  # otherwise W&B's service process stays until this process ends
