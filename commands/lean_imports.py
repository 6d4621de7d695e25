"""Imports torchmetrics, which lightning does in any case, without what nobody here uses. To be imported first."""

import lightning_utilities.core.imports as requirements


def _import_torchmetrics_alone() -> None:
    """torchmetrics imports transformers, wherever that is installed, for metrics that nothing here uses: a second."""
    check = requirements.RequirementCache
    requirements.RequirementCache = lambda name, *rest: not name.startswith("transformers") and check(name, *rest)
    try:
        import torchmetrics  # noqa: F401
    finally:
        requirements.RequirementCache = check


_import_torchmetrics_alone()
