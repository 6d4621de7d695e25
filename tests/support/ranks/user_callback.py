"""Defines a user's callback, which uses public hooks of Lightning alone."""

import json
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer


class GradientRecorder(Callback):
    """Writes the gradients that it sees after each backward pass into `after_backward/RANK.jsonl` of the run."""

    def on_after_backward(self, trainer: Trainer, pl_module: LightningModule) -> None:
        gradient = torch.cat([p.grad.flatten() for p in pl_module.parameters() if p.grad is not None])
        path = Path(trainer.default_root_dir) / "after_backward" / f"{trainer.global_rank}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            file.write(json.dumps({"step": trainer.global_step, "gradient": gradient.tolist()}) + "\n")
