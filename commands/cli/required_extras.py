"""Finds the extras of setup.cfg that a command needs, by its config, before anything is built or read."""

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Any

from jsonargparse import Namespace

from callbacks.trackers.tracker_registry import TRACKERS
from engine.optim.optimizers import OPTIMIZERS

_OPTIONS = {f"{tracker.KEY}.{tracker.ENABLED_BY}": tracker.KEY for tracker in TRACKERS} | {
    "prometheus.port": "monitoring"
}
"""{option: extra that it needs unless it is null}"""


def required_extras(config: Namespace, command: str) -> dict[str, str]:
    """Return {extra: part of the config that needs it}, for `engine.system.extras.require_extras`."""
    needs: dict[str, str] = {}
    for extra, user in _needs(config, command):
        needs.setdefault(extra, user)
    return needs


def _needs(config: Namespace, command: str) -> Iterator[tuple[str, str]]:
    model, settings = _class_and_settings(config.get("model"))
    if model is not None and model.extra:
        yield model.extra, model.__name__
    data, data_settings = _class_and_settings(config.get("data"))
    if data is not None and (extra := data.extra_for(data_settings)):
        yield extra, data.__name__
    optimizer: Any = settings.get("optimizer")
    if (spec := OPTIMIZERS.get(optimizer)) and spec.extra:
        yield spec.extra, f"model.init_args.optimizer {optimizer}"
    if (settings.get("language_model") or {}).get("quantize") == "nf4":
        yield "bits", "model.init_args.language_model.quantize nf4"
    if command == "fit" and (settings.get("language_model") or {}).get("loss_kernel") == "liger":
        yield "liger", "model.init_args.language_model.loss_kernel liger"
    if command == "export" and model is not None and model.export_extra:
        yield model.export_extra, "export"
    if command == "export" and settings.get("export_index"):
        yield "faiss", "model.init_args.export_index"
    if command in ("demo", "chat"):
        yield "demo", command
    for option, extra in _OPTIONS.items():
        if config.get(option) is not None:
            yield extra, option


def _class_and_settings(chosen: Namespace | None) -> tuple[Any, Mapping[str, Any]]:
    """Return the class of a config and its `init_args`; None if the config has none."""
    if not chosen or not chosen.get("class_path"):
        return None, {}
    module, _, name = chosen.class_path.rpartition(".")
    return getattr(import_module(module), name), chosen.get("init_args") or {}
