"""Tests that imported objects stay frozen to the end, except with Triton, which reports frozen objects as leaks."""

import atexit
import gc
import sys
from types import ModuleType

import pytest

from commands.launch.gc_freeze import exempt_imports_from_gc


@pytest.mark.parametrize("triton", [False, True])
def test_only_with_triton_the_imports_are_collected_at_the_end(monkeypatch, triton):
    at_the_end = []
    monkeypatch.setattr(atexit, "register", at_the_end.append)
    if triton:
        monkeypatch.setitem(sys.modules, "triton", ModuleType("triton"))
    else:
        monkeypatch.delitem(sys.modules, "triton", raising=False)
    gc.disable()
    exempt_imports_from_gc()
    assert gc.isenabled()
    assert gc.get_freeze_count() > 0
    (end,) = at_the_end
    end()
    found = gc.get_freeze_count()
    gc.freeze()  # as the session was
    assert (found == 0) == triton
