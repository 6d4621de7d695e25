"""Runs the trainings to measure: Lockstep's, and a plain loop with transformers."""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import nn

from benchmarks.engine.interleaving import Gate
from benchmarks.engine.trainings import lockstep
from benchmarks.vision_language.mixture import Mixture
from benchmarks.vision_language.models import Layout, Precision, Sizes, built, data_settings, model_settings, quiet
from benchmarks.vision_language.plain_llava import PlainLlava
from callbacks.performance.throughput import Throughput
from engine.data.dataloader import TimedDataLoader
from engine.datamodule import LockstepDataModule
from lightning_modules.vision_language.module import VisionLanguageModel


class _Turns(Callback):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: object) -> None:
        _step(self.gate, trainer.strategy.root_device)


def ours(
    gate: Gate,
    *,
    sizes: Sizes,
    layout: Layout,
    precision: Precision = "32-true",
    compiled: bool = False,
    workers: int = 0,
    callbacks: Sequence[Callback] = (),
) -> None:
    """Train the family's module in Lightning's Trainer with the Throughput callback, without a run's guards."""
    quiet()
    model = VisionLanguageModel(**model_settings(sizes, compiled))
    seed_everything(1, verbose=False)
    Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu",
        devices=1,
        precision=precision,
        max_epochs=-1,
        gradient_clip_val=1.0,
        log_every_n_steps=10,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
        limit_val_batches=0,
        callbacks=[Throughput(), *callbacks, _Turns(gate)],
    ).fit(model, Mixture(**data_settings(sizes, layout, workers)))


def run(gate: Gate, *, sizes: Sizes, layout: Layout, activation_checkpointing: bool = False) -> None:
    """Train with `train.py fit` on the CPU, as users do, with all guards."""
    quiet()
    model = model_settings(sizes, activation_checkpointing=activation_checkpointing)
    config = {
        "model": {"class_path": "VisionLanguageModel", "init_args": model},
        "data": {"class_path": f"{Mixture.__module__}.Mixture", "init_args": data_settings(sizes, layout)},
        "best_checkpoint": {"monitor": "none"},
    }
    path = Path("mixture.yaml")  # JSON is a subset of YAML
    path.write_text(json.dumps(config, default=asdict))
    lockstep(gate, options=["--config", str(path)])


def plain(gate: Gate, *, sizes: Sizes, layout: Layout, compiled: bool = False, workers: int = 0) -> None:
    """Train the plain model in a loop with autocast to bf16, on Lockstep's rows."""
    quiet()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    _, data = built(sizes, layout, meta=True)
    data.num_workers = workers
    model = PlainLlava(sizes, data.tokenizer.vocabulary_size, data.tokenizer.placeholder).to(device)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0)
    if compiled:
        compile_parts(model)
    while True:
        for (examples,) in loader_of(data, device):  # one part, as rows are packed
            tokens, labels, positions = (part.to(device, non_blocking=True) for part in examples.rows[:3])
            pixels = examples.encoder_input.pixels.to(device, non_blocking=True)
            optimizer.zero_grad()
            with torch.autocast(device.type, torch.bfloat16):
                loss = model(tokens, labels, pixels, positions)["loss"]
            loss.backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            _step(gate, device)


def compile_parts(model: PlainLlava) -> None:
    """Compile the parts in place."""
    for part in (model.tower, model.projector, model.language_model):
        part.compile()


def loader_of(data: LockstepDataModule, device: torch.device) -> TimedDataLoader:
    """Return the engine's loader for the device: copies from pinned memory do not block the host."""
    loader = data.train_dataloader()
    loader.pin_memory = device.type == "cuda"
    return loader


def _step(gate: Gate, device: torch.device) -> None:
    if gate.closing and device.type == "cuda":
        # At the end of a turn only: a wait in every step would slow the variant that has queued work.
        torch.cuda.synchronize(device)
    gate.step()
