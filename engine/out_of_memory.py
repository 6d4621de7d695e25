"""Whether an error says that memory has run out: each allocator says it in another way."""

import errno

import torch

_SAID = (
    "can't allocate memory",  # torch's allocator on the CPU
    "not enough memory",  # the same on Windows
    "CUDA error: out of memory",  # outside torch's allocator
    "CUBLAS_STATUS_ALLOC_FAILED",
    "MPS backend out of memory",
)


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this error, or the one that it was raised from, is about memory; a full disk is something else."""
    while True:
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _SAID):
            return True
        if error.__cause__ is None:
            return False
        error = error.__cause__
