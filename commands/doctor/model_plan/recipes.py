"""Lists recipes to train a language model, from the fastest with all weights to the recipe with the least memory."""

from typing import NamedTuple

from engine.optim.optimizers import OptimizerName
from lightning_modules.multimodal.language.quantization import Quantization
from lightning_modules.multimodal.language.settings import Trainable

COMMON = "--trainer.precision bf16-mixed --model.init_args.language_model.activation_checkpointing true"
"""Options of all recipes; gpu.yaml sets another precision, so they come after its file."""

_GPU, _FSDP = "--config configs/overlays/gpu.yaml", "--config configs/overlays/fsdp.yaml"
_FULL = "--model.init_args.language_model.trainable full"


class Recipe(NamedTuple):
    """A way to train, as settings and as the options that set them."""

    name: str
    options: str
    """Options that set it, besides COMMON."""
    trainable: Trainable
    quantize: Quantization | None = None
    optimizer: OptimizerName = "adamw"
    is_sharded: bool = False
    """Whether FSDP2 shards weights, gradients and optimizer state over all GPUs; otherwise DDP replicates them."""
    cpu_offload: bool = False


RECIPES = (
    Recipe("DDP, all weights", f"{_GPU} {_FULL}", "full"),
    Recipe(
        "DDP, 8-bit AdamW", f"{_GPU} {_FULL} --model.init_args.optimizer adamw_8bit", "full", optimizer="adamw_8bit"
    ),
    Recipe("FSDP2, all weights", f"{_FSDP} {_FULL}", "full", is_sharded=True),
    Recipe("LoRA", f"{_GPU} --model.init_args.language_model.trainable lora", "lora"),
    Recipe("QLoRA", f"{_GPU} --config configs/overlays/qlora.yaml", "lora", "nf4", optimizer="adamw_8bit"),
    Recipe(
        "FSDP2, CPU offload", f"{_FSDP} {_FULL} --trainer.strategy.init_args.cpu_offload true", "full",
        is_sharded=True, cpu_offload=True,
    ),
)  # fmt: skip
