"""Formats numbers of bytes for messages."""

MIB = 2**20
GIB = 2**30


def format_gib(size: float) -> str:
    """Return a size in GiB with two decimals: `1.50 GiB`."""
    return f"{size / GIB:.2f} GiB"


def format_size(size: float) -> str:
    """Return a size in the larger unit that fits: `1.5 GiB`, or `512 MiB` below 1 GiB."""
    return f"{size / GIB:.1f} GiB" if size >= GIB else f"{size / MIB:.0f} MiB"
