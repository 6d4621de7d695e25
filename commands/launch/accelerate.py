"""Warns about options of `accelerate launch` that have no effect here.

Accelerate starts ranks with torchrun's environment variables, which are used. Its further options are variables for its
own library, which is not used.
"""

from collections.abc import Mapping

_PRECISIONS = {"fp16": "16-mixed", "bf16": "bf16-mixed", "fp8": "transformer-engine"}
_SHORT_NAMES = {"16": "16-mixed", "bf16": "bf16-mixed"}
_KEYS = {  # name, accelerate's default, and the option that has the effect here
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ("gradient accumulation", "1", "--data.init_args.micro_batch_size"),
    "ACCELERATE_GRADIENT_CLIPPING": ("gradient clipping", "none", "--trainer.gradient_clip_val"),
}
_SHARDING = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}


def require_multi_gpu_flag(environ: Mapping[str, str]) -> None:
    """Refuse a single process that accelerate started although several were requested.

    Raises:
        ValueError: several processes were requested. Without GPUs accelerate starts one process, or expects mpirun to
            start them without ranks.
    """
    started_here = "LOCAL_RANK" in environ or "WORLD_SIZE" in environ
    requested = "MASTER_ADDR" in environ and "MASTER_PORT" in environ  # a shell may still have one of them
    if "ACCELERATE_MIXED_PRECISION" in environ and requested and not started_here:
        raise ValueError(
            "several processes were requested of accelerate launch, but this one has no rank and would train alone: "
            "give accelerate launch --multi_gpu (also for processes on CPUs)"
        )


def ignored_options(environ: Mapping[str, str], precision: str | int | None, on_accelerator: bool = False) -> list[str]:
    """Return a message for each option of accelerate that has no effect, with the option that has it.

    Args:
        environ: has accelerate's options as variables.
        precision: `trainer.precision`.
        on_accelerator: whether this run uses a GPU.
    """
    requested = environ.get("ACCELERATE_MIXED_PRECISION", "no")
    ignored = []
    if requested in _PRECISIONS and _SHORT_NAMES.get(str(precision), str(precision)) != _PRECISIONS[requested]:
        ignored.append(
            f"accelerate's mixed precision {requested} is ignored, trainer.precision is {precision or '32-true'}: "
            f"--trainer.precision {_PRECISIONS[requested]} has that effect"
        )
    for variable, (name, default, key) in _KEYS.items():
        if environ.get(variable, default) != default:
            ignored.append(f"accelerate's {name} of {environ[variable]} is ignored; {key} has that effect")
    if environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1", "yes") and on_accelerator:
        ignored.append("accelerate's --cpu is ignored, a GPU is used; --trainer.accelerator cpu has that effect")
    for variable, name in _SHARDING.items():
        if environ.get(variable) == "true":
            ignored.append(f"accelerate's {name} is ignored; --config configs/overlays/fsdp.yaml shards the model")
    return ignored
