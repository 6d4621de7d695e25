"""Imports modules and data modules of all families, which makes their short names valid in a config."""

from datamodules.document_qa.synthetic_manuals import SyntheticManuals
from datamodules.document_qa.user_documents import DocumentQuestions
from datamodules.image_classifier.datamodule import LabelledImages
from datamodules.recommender.datamodule import InteractionSequences
from datamodules.temporal.synthetic_series.datamodule import SyntheticSeries
from datamodules.temporal.timelines.datamodule import ResourceTimelines
from datamodules.temporal.user_series.datamodule import SeriesQuestions
from datamodules.vision_language.image_chats import ImageChats
from datamodules.vision_language.rendered_scenes import RenderedScenes
from lightning_modules.document_qa.reader_module import DocumentReader
from lightning_modules.document_qa.retriever_module import PageRetriever
from lightning_modules.image_classifier.module import ImageClassifier
from lightning_modules.recommender.module import SequentialRecommender
from lightning_modules.temporal.module import SeriesLanguageModel
from lightning_modules.vision_language.module import VisionLanguageModel
from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel

__all__ = [
    "DocumentQuestions",
    "DocumentReader",
    "ImageChats",
    "ImageClassifier",
    "InteractionSequences",
    "LabelledImages",
    "PageRetriever",
    "PretrainedVisionLanguageModel",
    "RenderedScenes",
    "ResourceTimelines",
    "SequentialRecommender",
    "SeriesLanguageModel",
    "SeriesQuestions",
    "SyntheticManuals",
    "SyntheticSeries",
    "VisionLanguageModel",
]
