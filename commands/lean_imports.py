"""Imports torchmetrics, which lightning does in any case, without what nobody here uses. To be imported first."""

import lightning_utilities.core.imports as requirements

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
