"""torch's compiler is imported when something is compiled. It takes as long as torch itself, and 70 MiB a process.

Three ask for it (torch._dynamo) where nothing is compiled: lightning, for a class to compare modules with, and torch's
optimizers and DistributedDataParallel, which mark functions as not to be compiled. All get by without as long as nobody
has imported it; from then on everything is as torch and lightning have it. A version of them that asks for more gets
the compiler, and so does activation checkpointing, which reads its settings.
"""

import functools
import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer
from torch.optim import optimizer as torch_optimizer

_COMPILER = "torch._dynamo"


def import_without_compiler(name: str) -> None:
    """Imports a module and leaves the compiler out, if the module makes do with what `_StandIn` has."""
    try:
        with _stand_in():
            importlib.import_module(name)
    except (ImportError, AttributeError):  # of one of the compiler's submodules, say
        importlib.import_module(name)


def torch_without_compiler() -> None:
    """The optimizers of torch.optim and DistributedDataParallel, in this process."""
    for kind in [one for one in vars(torch.optim).values() if isinstance(one, type) and issubclass(one, Optimizer)]:
        for name, method in list(vars(kind).items()):
            if _code(method) is _NOT_COMPILED:
                setattr(kind, name, _unless_imported(method, method.__wrapped__))
            elif _code(method) is _GRAPH_ENDS:
                setattr(kind, name, _unless_imported(method, _grad_if_differentiable(method.__wrapped__)))
    for name, method in list(vars(DistributedDataParallel).items()):
        within = getattr(method, "__wrapped__", None)
        if _code(method) is _CONTEXT and _code(within) is _NOT_COMPILED:
            spared = contextmanager(_unless_imported(within, within.__wrapped__))
            setattr(DistributedDataParallel, name, spared)
    DistributedDataParallel.__init__ = _with_stand_in(DistributedDataParallel.__init__)  # type: ignore[method-assign]


def _code(function: Any) -> object:
    return getattr(function, "__code__", None)


def _code_made_by(decorator: Callable[..., Any] | None) -> object:
    """What all functions that it has decorated have in common; without the decorator something that none has."""
    return decorator(lambda: iter(())).__code__ if decorator else object()


_CONTEXT = _code_made_by(contextmanager)
_NOT_COMPILED = _code_made_by(getattr(torch, "_disable_dynamo", None))
_GRAPH_ENDS = _code_made_by(getattr(torch_optimizer, "_use_grad_for_differentiable", None))


def _unless_imported(marked: Callable[..., Any], plain: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(marked)
    def chosen(*args: Any, **kwargs: Any) -> Any:
        imported = _COMPILER in sys.modules and not isinstance(sys.modules[_COMPILER], _StandIn)
        return (marked if imported else plain)(*args, **kwargs)

    return chosen


def _grad_if_differentiable(step: Callable[..., Any]) -> Callable[..., Any]:
    """What torch's own decorator does around an optimizer's step, less the compiler."""

    @functools.wraps(step)
    def stepped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        with torch.set_grad_enabled(self.defaults["differentiable"]):
            return step(self, *args, **kwargs)

    return stepped


class _LikeCompiled(type):
    def __instancecheck__(cls, one: object) -> bool:
        compiler = sys.modules.get(f"{_COMPILER}.eval_frame")  # without it there is no compiled module
        return isinstance(one, getattr(compiler, "OptimizedModule", ()))


class _OptimizedModule(metaclass=_LikeCompiled):
    """What is an instance of the compiler's class of this name is one of this."""


class _Utils:
    @staticmethod
    def get_optimize_ddp_mode() -> str:
        return "ddp_optimizer"  # the default; who sets another one has imported the compiler

    def __getattr__(self, name: str) -> Any:
        return getattr(_real().utils, name)


class _StandIn(ModuleType):
    """In the compiler's place while lightning is imported or DistributedDataParallel set up."""

    OptimizedModule = _OptimizedModule
    utils = _Utils()

    @staticmethod
    def disable(fn: Callable[..., Any] | None = None, recursive: bool = True, **how: Any) -> Callable[..., Any]:
        if fn is None or not hasattr(torch, "_disable_dynamo"):
            return _real().disable(fn, recursive, **how)

        @functools.wraps(fn)
        def own(*args: Any, **kwargs: Any) -> Any:  # torch may keep what is returned as the marked form of fn itself
            return fn(*args, **kwargs)

        return _unless_imported(torch._disable_dynamo(own, recursive), fn)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # the import system's questions: it is no package
            raise AttributeError(name)
        return getattr(_real(), name)


def _real() -> ModuleType:
    if isinstance(sys.modules.get(_COMPILER), _StandIn):
        del sys.modules[_COMPILER]
    return importlib.import_module(_COMPILER)


@contextmanager
def _stand_in() -> Iterator[None]:
    if _COMPILER in sys.modules:
        yield
        return
    stand_in = sys.modules[_COMPILER] = _StandIn(_COMPILER)
    try:
        yield
    finally:
        if sys.modules.get(_COMPILER) is stand_in:
            del sys.modules[_COMPILER]


def _with_stand_in(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        with _stand_in():
            return function(*args, **kwargs)

    return called
