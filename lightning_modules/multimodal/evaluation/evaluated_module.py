"""Base of the modules whose evaluation is a component."""

from collections.abc import Callable
from typing import Any

import torch
from typing_extensions import override

from engine.interface import DataT
from engine.module import LockstepModule
from engine.telemetry.sample_previews import SamplePreview
from lightning_modules.multimodal.evaluation.evaluator import Evaluator, Line


class EvaluatedModule(LockstepModule[DataT]):
    """Evaluates, previews and predicts with an Evaluator."""

    evaluation: Evaluator[Any]
    """Set in `configure_model`."""

    @override
    def on_validation_epoch_start(self) -> None:
        self.evaluation.begin()

    @override
    def validation_step(self, batch: Any, batch_idx: int) -> None:
        self.evaluation.update(self, batch)

    @override
    def on_validation_epoch_end(self) -> None:
        self._log_metrics("val")

    @override
    def sample_previews(self) -> list[Callable[[], SamplePreview]]:
        return self.evaluation.previews(self)

    on_test_epoch_start, test_step = on_validation_epoch_start, validation_step

    @override
    def on_test_epoch_end(self) -> None:
        self._log_metrics("test")
        self.evaluation.report(self)

    def _log_metrics(self, stage: str) -> None:
        for name, value in self.evaluation.finish(self).items():
            metric = torch.tensor(value, dtype=torch.float32, device=self.device)
            main = stage == "val" and name == self.evaluation.main_metric
            self.log(f"{stage}/{name}", metric, prog_bar=main, batch_size=1)

    @override
    def predict_step(self, batch: Any, batch_idx: int) -> list[Line]:
        return self.evaluation.predict(self, batch)
