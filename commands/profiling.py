"""`--trainer.profiler simple`, `advanced` or `pytorch`, written into the run's folder.

Lightning prints the first two among everything else, and leaves the third's traces where it was started.
"""

from pathlib import Path

from lightning.pytorch.profilers import AdvancedProfiler, Profiler, PyTorchProfiler, SimpleProfiler
from torch.profiler import schedule

FOLDER = "profile"

STEPS = 3
"""Of training, and of each evaluation, that `pytorch` traces, after two that are not like the others."""


def profiler_in(folder: Path, given: Profiler | str | None) -> Profiler | str | None:
    """
    Args:
        folder: of the run.
        given: `trainer.profiler`; one that is described in full, and one that Lightning knows by another name, stay.
    """
    if given == "simple":
        return SimpleProfiler(folder / FOLDER, given)
    if given == "advanced":
        return AdvancedProfiler(folder / FOLDER, given)
    if given == "pytorch":
        # The same schedule without being named is given up for good, and all steps are kept in memory, where the
        # validation has fewer than five batches.
        return PyTorchProfiler(folder / FOLDER, given, schedule=schedule(wait=1, warmup=1, active=STEPS))
    return given
