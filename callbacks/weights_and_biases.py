"""Weights & Biases' record of a run, beside TensorBoard's."""

import logging
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from lightning.fabric.loggers.logger import _DummyExperiment, rank_zero_experiment
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities.rank_zero import rank_zero_only

log = logging.getLogger("lockstep")

_FINISH_PATIENCE = 60.0
"""Seconds for the last figures to be uploaded; without a network they would take for ever, and stay on the disk."""


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


class WeightsAndBiases(WandbLogger):
    """Lightning's, with all files in the run's folder, and one W&B run for all starts of a run.

    Like TensorBoard's, the record begins with training or with the first figure, and an error in the middle ends the
    record, not the run.

    Args:
        settings: with a project.
        folder: of the run.
        config: of the run, shown beside its figures.

    Raises:
        ValueError: wandb is not installed.
    """

    def __init__(self, settings: WandbSettings, folder: Path, config: Mapping[str, Any]) -> None:
        self.settings, self.folder, self.run_config = settings, folder, config
        self._begun = self._ended = False
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

    @rank_zero_only
    def begin(self) -> None:
        """From now on there is a record; where W&B itself is at fault, none.

        Raises:
            ValueError: W&B cannot be reached, or does not know the user.
        """
        if self._begun:
            return
        self._begun = True
        import wandb

        try:
            self._wandb_init["id"] = self._run_id()
            # What is printed is in train.log already; of the program's own text W&B keeps nothing.
            self._wandb_init["settings"] = wandb.Settings(
                console="off", silent=True, save_code=False, disable_git=True,
                finish_timeout=_FINISH_PATIENCE, finish_timeout_raises=False,
            )  # fmt: skip
            self.experiment.config.update(dict(self.run_config), allow_val_change=True)
        except wandb.Error as error:
            raise ValueError(
                f"W&B does not begin a record: {error} Log in with `wandb login`, or record without a network: "
                "--wandb.mode offline"
            ) from error
        except Exception as error:
            self._ended = True
            log.warning("WARNING: W&B does not begin a record (%s); this run goes on without it", error)
            return
        where = "uploading" if self.settings.mode == "online" else f"wandb sync {self.folder}/wandb/offline-run-*"
        log.info("W&B: project %s, run %s; %s", self.settings.project, self._wandb_init["id"], where)

    def _run_id(self) -> str:
        file = self.folder / "wandb" / "run-id"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            beside = file.with_suffix(".new")
            beside.write_text(uuid.uuid4().hex[:12] + "\n", encoding="ascii")
            beside.replace(file)
        return file.read_text(encoding="ascii").strip()

    @property
    @rank_zero_experiment
    def experiment(self) -> Any:
        if not self._begun or self._ended:
            return _DummyExperiment()
        return WandbLogger.experiment.fget(self)  # type: ignore[attr-defined]

    def log_hyperparams(self, params: Any, *args: Any, **kwargs: Any) -> None:
        """The whole config is there already."""

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        self.begin()
        try:
            super().log_metrics(metrics, step)
        except Exception as error:
            self._ended = True
            log.warning("WARNING: W&B records no more of this run (%s); its figures go on in metrics.jsonl", error)

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._experiment is None:
            return
        import wandb

        try:
            self._experiment.finish(exit_code=0 if status == "success" else 1)
            wandb.teardown()  # its process would wait for ours to end
        except Exception as error:
            log.warning("WARNING: W&B's record has no proper end (%s)", error)
        self._ended = True
