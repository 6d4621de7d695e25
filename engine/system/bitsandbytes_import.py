"""Imports bitsandbytes, which takes seconds, without the error that its first import logs."""

import logging
from types import ModuleType


def silence_bitsandbytes_import() -> None:
    """Silence the error about a missing CPU kernel for 4-bit weights, which Lockstep does not use.

    peft imports bitsandbytes where it is installed, so call this before an import of peft, too.
    """
    logging.getLogger("bitsandbytes.backends.cpu.ops").setLevel(logging.ERROR)


def import_bitsandbytes() -> ModuleType:
    """Return bitsandbytes."""
    silence_bitsandbytes_import()
    import bitsandbytes

    return bitsandbytes
