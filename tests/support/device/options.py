"""Options of a training on a device. The device is all in which the two forms of a test differ."""

from tests.conftest import REPOSITORY
from tests.support.device.half_on_cpu import half_on_cpu

OVERLAYS = REPOSITORY / "configs/overlays"

DETERMINISTIC = ["--trainer.deterministic", "true"]
"""On a GPU sums by atomics differ from run to run in their last bits; with this option they do not."""


def on(device: str, precision: str = "32-true", overlay: str = "gpu") -> list[str]:
    """Return the options that put a training on a device: one process, with an overlay for GPUs.

    Args:
        device: `cuda` or `cpu`.
        precision: `trainer.precision`. In 16-mixed the CPU computes in float16 with a loss scaler, too.
        overlay: name of the overlay.
    """
    options = ["--config", str(OVERLAYS / f"{overlay}.yaml"), "--trainer.devices", "1"]
    if device == "cuda":
        return [*options, "--trainer.precision", precision]
    options += ["--trainer.accelerator", "cpu"]
    if precision == "16-mixed":
        return [*options, "--trainer.precision", "null", *half_on_cpu()]
    return [*options, "--trainer.precision", precision]


def quiet(steps: int) -> list[str]:
    """Return the options of a training of so many steps that logs each of them."""
    return [
        "--trainer.max_epochs",
        "-1",
        "--trainer.max_steps",
        str(steps),
        "--trainer.log_every_n_steps",
        "1",
        "--trainer.enable_progress_bar",
        "false",
    ]
