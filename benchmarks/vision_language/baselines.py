"""Peers around the plain model: a bare torch loop, Accelerate, and Hugging Face's Trainer.

Samples of every step, optimizer and its settings, clipping and precision (fp32) are those of Lockstep; all run on the
CPU.
"""

from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import nn
from torch.utils.data import DataLoader, SequentialSampler

from benchmarks.engine.interleaving import Gate
from benchmarks.vision_language.models import Layout, Sizes, built, quiet
from benchmarks.vision_language.plain_llava import PlainChat, PlainChats, PlainLlava

_SEED = 1
_LEARNING_RATE, _BETAS = 1e-4, (0.9, 0.95)


def parts(sizes: Sizes) -> tuple[PlainLlava, PlainChats]:
    """Return model and data."""
    quiet()
    _, data = built(sizes, Layout(), meta=True)
    torch.manual_seed(_SEED)
    model = PlainLlava(sizes, data.tokenizer.vocabulary_size, data.tokenizer.placeholder)
    return model, PlainChats(data.train_set, sizes.batch_size, _SEED)


def bare(gate: Gate, *, sizes: Sizes) -> None:
    """Train in a plain loop."""
    model, chats = parts(sizes)
    optimizer = _optimizer(model)
    # A loader without shuffling, as PlainChats has the engine's random order.
    for batch in _loader(chats, sizes):
        optimizer.zero_grad()
        model(**batch)["loss"].backward()
        nn.utils.clip_grad_norm_(_trained(model), 1.0)
        optimizer.step()
        gate.step()


def accelerate(gate: Gate, *, sizes: Sizes) -> None:
    """Train in the same loop with Accelerate, as in its quick tour."""
    from accelerate import Accelerator

    model, chats = parts(sizes)
    accelerator = Accelerator(cpu=True)
    optimizer = _optimizer(model)
    model, optimizer, loader = accelerator.prepare(model, optimizer, _loader(chats, sizes))
    for batch in loader:
        optimizer.zero_grad()
        accelerator.backward(model(**batch)["loss"])
        accelerator.clip_grad_norm_(_trained(model), 1.0)
        optimizer.step()
        gate.step()


def hugging_face(gate: Gate, *, sizes: Sizes) -> None:
    """Train with transformers.Trainer and its defaults, except for settings that must be equal."""
    import transformers

    model, chats = parts(sizes)

    class Turns(transformers.TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            gate.step()

    class InOrder(transformers.Trainer):
        def _get_train_sampler(self, *args: Any) -> SequentialSampler:
            return SequentialSampler(chats)  # the order is random already

    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            folder,
            per_device_train_batch_size=sizes.batch_size,
            max_steps=10**8,
            learning_rate=_LEARNING_RATE,
            adam_beta2=_BETAS[1],
            weight_decay=0.0,
            lr_scheduler_type="constant",
            max_grad_norm=1.0,
            logging_steps=10,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            remove_unused_columns=False,
            use_cpu=True,
            seed=_SEED,
        )
        trainer = InOrder(model, arguments, chats.collate, chats, callbacks=[Turns()])
        # It prints a line per log, and Lockstep's variant prints none.
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()


def _optimizer(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(_trained(model), lr=_LEARNING_RATE, betas=_BETAS, weight_decay=0.0)


def _trained(model: nn.Module) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def _loader(chats: PlainChats, sizes: Sizes) -> DataLoader[PlainChat]:
    return DataLoader(chats, sizes.batch_size, collate_fn=chats.collate)
