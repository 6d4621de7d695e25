"""Recognizes out-of-memory errors, which each allocator words differently."""

import errno

import torch

_MESSAGES = (
    "can't allocate memory",  # torch's CPU allocator
    "not enough memory",  # the same on Windows
    "CUDA error: out of memory",  # outside of torch's CUDA allocator
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "Triton Error [CUDA]: out of memory",  # of a kernel that torch.compile has made
    "'out of memory'",  # NCCL's "Cuda failure 2 'out of memory'"
    "MPS backend out of memory",
)


def is_oom_error(error: BaseException) -> bool:
    """Return whether an error, or one of its causes, means that memory is exhausted. A full disk does not count."""
    cause: BaseException | None = error
    seen: set[int] = set()
    while cause is not None and id(cause) not in seen:  # an error may be among its own causes
        error = cause
        seen.add(id(error))
        if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
            return True
        if isinstance(error, OSError) and error.errno == errno.ENOMEM:
            return True
        if isinstance(error, RuntimeError) and any(text in str(error) for text in _MESSAGES):
            return True
        cause = error.__cause__
    return False
