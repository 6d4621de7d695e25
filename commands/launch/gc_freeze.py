"""Exempts the objects of imported modules from garbage collection: they stay until the process ends."""

import atexit
import gc
import sys


def exempt_imports_from_gc() -> None:
    """Exempt all present objects from garbage collection, also at the end of the process, and start collecting others.

    If Triton is imported, the objects are collected at the end after all: otherwise Triton 3.9, of torch 2.15 for GPUs,
    prints two dozen lines about objects that exist at the end ("nanobind: leaked ...").
    """
    gc.freeze()
    gc.enable()
    atexit.register(_unfreeze_for_triton)


def _unfreeze_for_triton() -> None:
    if "triton" in sys.modules:  # the collection takes a second
        gc.unfreeze()
