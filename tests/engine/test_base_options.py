"""Compares the types of passed-on options with the signatures of the constructors that take them."""

import inspect
from typing import get_type_hints

import pytest

from datamodules.document_qa.datamodule import DocumentDataModule, DocumentOptions
from datamodules.multimodal.datamodule import ChatOptions, MultimodalDataModule
from datamodules.multimodal.image_datamodule import TileOptions
from datamodules.temporal.series.datamodule import SeriesDataModule, SeriesOptions
from datamodules.vision_language.datamodule import VisionLanguageDataModule
from engine.base_options import LoadingOptions, TrainingOptions
from engine.datamodule import LockstepDataModule
from engine.module import LockstepModule
from lightning_modules.multimodal.language_module import LanguageModule, LanguageModuleOptions
from lightning_modules.multimodal.multimodal_module import MultimodalModule

COMPONENTS = {"modality", "language_model", "projector"}
"""Parameters of LanguageModule and MultimodalModule that a family gives itself."""


def parameters(cls: type, end: type) -> dict[str, object]:
    """Types of the named parameters of the constructors of a class and its bases, up to `end`."""
    found: dict[str, object] = {}
    for base in reversed(cls.__mro__[: cls.__mro__.index(end) + 1]):
        if "__init__" in vars(base):
            hints = get_type_hints(base.__init__)
            named = inspect.signature(base.__init__).parameters.values()
            keywords = [
                parameter.name
                for parameter in named
                if parameter.kind is not parameter.VAR_KEYWORD and parameter.name != "self"
            ]
            found |= {name: hints[name] for name in keywords}
    return found


@pytest.mark.parametrize(
    ("options", "cls", "end"),
    [
        (TrainingOptions, LockstepModule, LockstepModule),
        (LanguageModuleOptions, LanguageModule, LockstepModule),
        (LanguageModuleOptions, MultimodalModule, LockstepModule),
        (LoadingOptions, LockstepDataModule, LockstepDataModule),
        (ChatOptions, MultimodalDataModule, LockstepDataModule),
        (TileOptions, VisionLanguageDataModule, LockstepDataModule),
        (SeriesOptions, SeriesDataModule, LockstepDataModule),
        (DocumentOptions, DocumentDataModule, LockstepDataModule),
    ],
)
def test_the_options_are_those_of_the_constructors(options, cls, end):
    given = {name: hint for name, hint in parameters(cls, end).items() if name not in COMPONENTS}
    assert get_type_hints(options) == given
