"""What a loader asks for a micro-batch: the data set behind it, without its bad samples and with a look at the room."""

from typing import Any, NamedTuple

from torch.utils.data import Dataset, default_convert, get_worker_info

from engine.bad_samples import LeftOut, without_bad
from engine.sampling import Draw
from engine.shared_memory import put_there


class Loaded(NamedTuple):
    """A micro-batch on its way to the training process."""

    batch: Any
    left_out: tuple[LeftOut, ...] = ()
    size: int = 0  # bytes that it takes in shared memory; 0 without workers


class Reader(Dataset[Loaded]):
    """Loads draws of a data set.

    Args:
        data: a BatchedDataset or StreamBatches.
        leave_out: leave bad samples out; otherwise they are errors.
    """

    def __init__(self, data: Any, leave_out: bool) -> None:
        self.data, self.leave_out = data, leave_out

    def __len__(self) -> int:
        return len(self.data)

    def __getitem__(self, draw: Draw) -> Loaded:
        batch, left_out = without_bad(self.data.__getitem__, draw) if self.leave_out else (self.data[draw], ())
        if get_worker_info() is None:
            return Loaded(batch, left_out)
        batch = default_convert(batch)  # as the DataLoader would: arrays become tensors
        return Loaded(batch, left_out, put_there(batch))
