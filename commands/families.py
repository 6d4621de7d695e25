"""The families that the command line knows: importing a class makes its short name valid in a config."""

from datamodules.recommender.datamodule import InteractionSequences
from lightning_modules.recommender.module import SequentialRecommender

__all__ = ["InteractionSequences", "SequentialRecommender"]
