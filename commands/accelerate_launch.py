"""`accelerate launch train.py ...`: on several GPUs it is torchrun with other words; what it does besides is not.

It says nothing to the program but by variables: those of torchrun, which are heeded, and its own, which are for its
own library.
"""

from collections.abc import Mapping

_OURS = {"fp16": "16-mixed", "bf16": "bf16-mixed", "fp8": "transformer-engine"}
_SHORT = {"16": "16-mixed", "bf16": "bf16-mixed"}
_KEYS = {  # what it is, what accelerate says unless it was asked, and what has that effect here
    "ACCELERATE_GRADIENT_ACCUMULATION_STEPS": ("gradient accumulation", "1", "--data.init_args.micro_batch_size"),
    "ACCELERATE_GRADIENT_CLIPPING": ("gradient clipping", "none", "--trainer.gradient_clip_val"),
}
_SHARDING = {"ACCELERATE_USE_FSDP": "FSDP", "ACCELERATE_USE_DEEPSPEED": "DeepSpeed"}


def refuse_lonely(environ: Mapping[str, str]) -> None:
    """
    Raises:
        ValueError: several processes were asked for, and without GPUs accelerate has started one, or leaves it to
            mpirun to start them, which know nothing of each other.
    """
    started_here = "LOCAL_RANK" in environ or "WORLD_SIZE" in environ
    asked = "MASTER_ADDR" in environ and "MASTER_PORT" in environ  # one alone is left over in somebody's shell
    if "ACCELERATE_MIXED_PRECISION" in environ and asked and not started_here:
        raise ValueError(
            "accelerate launch was asked for several processes, but has started this one without a rank, so that it "
            "would train alone: give accelerate launch --multi_gpu (processes on CPUs start with it too)"
        )


def unheeded(environ: Mapping[str, str], precision: str | int | None, on_accelerator: bool = False) -> list[str]:
    """What accelerate was asked for and has no effect here, with what has.

    Args:
        precision: `trainer.precision`.
        on_accelerator: whether this run takes a GPU.
    """
    asked = environ.get("ACCELERATE_MIXED_PRECISION", "no")
    found = []
    if asked in _OURS and _SHORT.get(str(precision), str(precision)) != _OURS[asked]:
        found.append(
            f"accelerate's mixed precision {asked} is not heeded, trainer.precision is {precision or '32-true'}: "
            f"--trainer.precision {_OURS[asked]} has that effect"
        )
    for variable, (name, usual, key) in _KEYS.items():
        if environ.get(variable, usual) != usual:
            found.append(f"accelerate's {name} of {environ[variable]} is not heeded; {key} has that effect")
    if environ.get("ACCELERATE_USE_CPU", "").lower() in ("true", "1", "yes") and on_accelerator:
        found.append("accelerate's --cpu is not heeded, a GPU is used; --trainer.accelerator cpu has that effect")
    for variable, name in _SHARDING.items():
        if environ.get(variable) == "true":
            found.append(f"accelerate's {name} is not heeded; --config configs/overlays/fsdp.yaml shards the model")
    return found
