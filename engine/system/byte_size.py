"""Formats numbers of bytes for messages."""

MIB = 2**20
GIB = 2**30


def format_gib(size: float) -> str:
    """Return a size in GiB with two decimals: `1.50 GiB`."""
    return f"{size / GIB:.2f} GiB"


def format_bytes(number: float) -> str:
    """Return a number of bytes in the largest unit below it, with one decimal: `1.5 MiB`, `512 bytes`."""
    for unit in ("bytes", "KiB", "MiB", "GiB", "TiB"):
        if number < 1024 or unit == "TiB":
            break
        number /= 1024
    return f"{number:.0f} {unit}" if unit == "bytes" else f"{number:.1f} {unit}"
