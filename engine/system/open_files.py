"""Raises the limit of open files of this process, which loader workers and connections between ranks need."""

from contextlib import suppress

_NEEDED = 128
"""Open files that a training with loader workers needs at least."""
_ENOUGH = 65_536


def raise_open_file_limit() -> None:
    """Raise this process's own limit of open files as far as the system allows. Children inherit it.

    With too few, loader workers cannot pass batches on, and the training waits for them until the watchdog ends it.

    Raises:
        ValueError: the system allows fewer than a training needs.
    """
    try:
        import resource
    except ImportError:  # Windows, which has no such limit
        return

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited = hard == resource.RLIM_INFINITY
    if not unlimited and hard < _NEEDED:
        raise ValueError(
            f"this process may open {hard} files (`ulimit -Hn`), but a training with loader workers needs {_NEEDED}: "
            "raise the limit in the shell, the container or the job that starts it"
        )
    target = _ENOUGH if unlimited else min(hard, _ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < target:
        with suppress(ValueError, OSError):  # macOS allows fewer than its hard limit states; the old limit stays
            resource.setrlimit(resource.RLIMIT_NOFILE, (target, hard))
