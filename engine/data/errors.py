"""Defines errors that concern a single sample or document, and not the run.

This module imports neither torch nor Lightning, so the ingestion of documents starts fast.
"""

from typing import Any


class BadSampleError(ValueError):
    """A bad sample: a sample that cannot be used, because e.g. its row is malformed or its image cannot be decoded.

    A data set raises this error only for a defect of the sample itself. Every other error (a missing folder, a failing
    disk, a wrong setting) ends the run, whatever `on_bad_sample` is.

    Args:
        what: the message. It names the sample, with file and row if there are any, and states the defect.
        sample: index of the sample. If it is None, the samples of the batch are loaded separately to find it.
    """

    def __init__(self, what: str, sample: int | None = None) -> None:
        super().__init__(what)
        self.sample = sample

    def __reduce__(self) -> tuple[Any, ...]:
        # Exceptions pickle only `args` by default; loader workers send theirs to the training process.
        return type(self), (*self.args, self.sample)


class KnownBadSampleError(BadSampleError):
    """A bad sample that was found, and accepted by the user, before the run. It is skipped and not counted."""


class FileChangedError(OSError):
    """A file has other content than when the run began. It concerns all samples, so no sample is skipped for it."""


class UnreadableDocumentError(ValueError):
    """A document that is corrupt, encrypted, empty or too large. The message gives the reason without the file name."""
