"""Finds the answers of a family by the class of its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

from commands.answers.interface import Demo
from engine.module import LockstepModule


class Family(NamedTuple):
    """How the answers of a family are created."""

    module: str  # of this package; it has `create(model, data) -> Demo`
    stage: Literal["predict", "validate"] | None  # that the data are set up for; None: answers need no split of them

    @property
    def create(self) -> Callable[[Any, Any], Demo]:
        """The function that creates the answers from the model and its data module."""
        function: Callable[[Any, Any], Demo] = import_module(f"commands.answers.families.{self.module}").create
        return function


_FAMILIES = {
    "DocumentReader": Family("document_qa", None),
    "ImageClassifier": Family("image_classifier", "predict"),
    "PretrainedVisionLanguageModel": Family("pretrained_vision_language", "validate"),
    "SequentialRecommender": Family("recommender", "predict"),
    # `predict` needs a file of questions.
    "TimelineReader": Family("temporal", "validate"),
    "VisionLanguageModel": Family("vision_language", "validate"),
}
"""{class of a module: its family}"""


def family_of(model: LockstepModule) -> Family:
    """Return the family of a model.

    Raises:
        ValueError: the family has none.
    """
    family = next((_FAMILIES[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _FAMILIES), None)
    if family is None:
        raise ValueError(f"{type(model).__name__} has no demo; those that have: {', '.join(_FAMILIES)}")
    return family
