"""Imports torchmetrics and lightning without what nobody here uses. To be imported before them."""

import lightning_utilities.core.imports as requirements

from commands.compiler_on_demand import import_without_compiler, torch_without_compiler

_UNUSED = ("transformers", "scipy", "matplotlib", "PIL", "regex")


def _import_torchmetrics_alone() -> None:
    """torchmetrics imports them, wherever they are installed, for metrics that nothing here uses: seconds."""
    cache, available = requirements.RequirementCache, requirements.package_available
    requirements.RequirementCache = lambda name, *rest: not name.startswith(_UNUSED) and cache(name, *rest)
    requirements.package_available = lambda name: name not in _UNUSED and available(name)
    try:
        import torchmetrics  # noqa: F401
    finally:
        requirements.RequirementCache, requirements.package_available = cache, available


_import_torchmetrics_alone()
import_without_compiler("lightning.pytorch")
torch_without_compiler()
