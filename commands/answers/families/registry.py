"""Finds the answers of a family by the class of its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any

from commands.answers.interface import Demo
from engine.module import LockstepModule

_FAMILIES = {
    "ImageClassifier": "image_classifier",
    "SequentialRecommender": "recommender",
}
"""{class of a module: module of this package, which has `create(model, data) -> Demo`}"""


def create_demo(model: LockstepModule) -> Callable[[Any, Any], Demo]:
    """Return the function that creates the answers of a model from the model and its data module.

    Raises:
        ValueError: the family has none.
    """
    family = next((_FAMILIES[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _FAMILIES), None)
    if family is None:
        raise ValueError(f"{type(model).__name__} has no demo; those that have: {', '.join(_FAMILIES)}")
    create: Callable[[Any, Any], Demo] = import_module(f"commands.answers.families.{family}").create
    return create
