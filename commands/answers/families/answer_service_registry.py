"""Finds the answers of a family by the class of its module."""

from collections.abc import Callable
from importlib import import_module
from typing import Any, Literal, NamedTuple

from commands.answers.answer_service import AnswerService
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule


class Family(NamedTuple):
    """Where the answer service of a family is defined, and the split that its data are set up for."""

    module: str  # of this package
    service: str  # class or function that takes the model and the data module and returns an AnswerService
    stage: Literal["predict", "validate"] | None  # that the data are set up for; None: answers need no split of them

    def create(self, model: LockstepModule, data: LockstepDataModule) -> AnswerService:
        """Return the AnswerService of a model. The family's packages are imported only now."""
        module = import_module(f"commands.answers.families.{self.module}")
        create: Callable[[Any, Any], AnswerService] = getattr(module, self.service)
        return create(model, data)


_FAMILIES = {
    "DocumentReader": Family("document_qa", "DocumentAnswers", None),
    "ImageClassifier": Family("image_classifier", "ClassifierAnswers", "predict"),
    "PretrainedVisionLanguageModel": Family("pretrained_vision_language", "PretrainedAnswers", "validate"),
    "SequentialRecommender": Family("recommender", "RecommenderAnswers", "predict"),
    # `predict` needs a file of questions.
    "SeriesLanguageModel": Family("timelines", "choose_answers", "validate"),
    "VisionLanguageModel": Family("vision_language", "VisionLanguageAnswers", "validate"),
}
"""{class of a module: its family}"""


def family_of(model: LockstepModule) -> Family:
    """Return the family of a model.

    Raises:
        ValueError: the family has none.
    """
    family = next((_FAMILIES[kind.__name__] for kind in type(model).__mro__ if kind.__name__ in _FAMILIES), None)
    if family is None:
        raise ValueError(f"{type(model).__name__} has no answers for demo and chat; these have: {', '.join(_FAMILIES)}")
    return family
