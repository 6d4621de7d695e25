"""The trainings that are measured: ours, and what one writes by hand with transformers."""

from itertools import count
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import nn
from torch.nn import functional as F

from benchmarks.engine.turns import Gate
from benchmarks.vision_language.models import Layout, Sizes, built, data_of, model_of, quiet
from callbacks.throughput import Throughput


class _Turns(Callback):
    def __init__(self, gate: Gate) -> None:
        self.gate = gate

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: object) -> None:
        _step(self.gate, trainer.strategy.root_device)


def ours(
    gate: Gate, *, sizes: Sizes, layout: Layout, precision: str = "32-true", compiled: bool = False, workers: int = 0
) -> None:
    """The family's module in the engine, with the callback that tells its speed."""
    quiet()
    seed_everything(1, verbose=False)
    Trainer(
        accelerator="auto" if torch.cuda.is_available() else "cpu", devices=1, precision=precision, max_epochs=-1,
        gradient_clip_val=1.0, log_every_n_steps=10, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, use_distributed_sampler=False, limit_val_batches=0,
        callbacks=[Throughput(), _Turns(gate)],
    ).fit(model_of(sizes, compiled), data_of(sizes, layout, workers))  # fmt: skip


def plain(gate: Gate, *, sizes: Sizes, layout: Layout, compiled: bool = False, workers: int = 0) -> None:
    """A loop with autocast to bf16, features put in place with masked_scatter, and scores of all tokens."""
    from transformers import AutoConfig, AutoModel, AutoModelForCausalLM

    quiet()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    _, data = built(sizes, layout, meta=True)
    data.num_workers = workers
    tower_settings, settings = dict(sizes.tower), dict(sizes.language_model)
    kinds = tower_settings.pop("model_type"), settings.pop("model_type")
    tower = AutoModel.from_config(AutoConfig.for_model(kinds[0], vision_use_head=False, **tower_settings))
    tower.eval().requires_grad_(False)
    vocabulary = data.tokenizer.vocabulary_size
    language_model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kinds[1], **settings, vocab_size=vocabulary))
    width = settings["hidden_size"]
    projector = nn.Sequential(nn.Linear(tower_settings["hidden_size"], width), nn.GELU(), nn.Linear(width, width))
    parts = [part.to(device) for part in (tower, projector, language_model)]
    trained = [*projector.parameters(), *language_model.parameters()]
    optimizer = torch.optim.AdamW(trained, lr=1e-4, betas=(0.9, 0.95), weight_decay=0.0)
    if compiled:
        parts = [torch.compile(part) for part in parts]
    for epoch in count():
        for batch in data.train_dataloader():
            optimizer.zero_grad()
            _loss(parts, batch, data.tokenizer.placeholder, device).backward()
            nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            _step(gate, device)


def _loss(parts: list[Any], batch: Any, placeholder: int, device: torch.device) -> torch.Tensor:
    tower, projector, language_model = parts
    (examples,) = batch
    tokens, labels, positions = (part.to(device, non_blocking=True) for part in examples.rows[:3])
    pixels = examples.modality.pixels.to(device, non_blocking=True)
    with torch.autocast(device.type, torch.bfloat16):
        with torch.no_grad():
            states = tower(pixel_values=pixels.float() / 127.5 - 1).last_hidden_state
        embeddings = language_model.get_input_embeddings()(tokens)
        places = (tokens == placeholder).unsqueeze(-1).expand_as(embeddings)
        embeddings = embeddings.masked_scatter(places, projector(states).to(embeddings.dtype))
        scores = language_model(inputs_embeds=embeddings, position_ids=positions, use_cache=False).logits
    return F.cross_entropy(scores[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())


def _step(gate: Gate, device: torch.device) -> None:
    if gate.closing and device.type == "cuda":
        torch.cuda.synchronize(device)
    gate.step()
