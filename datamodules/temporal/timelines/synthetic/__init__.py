"""Generates timelines and questions about them.

Imports `text` and `channels` beside it, `datamodules.multimodal.synthetic_split` and `engine.determinism`.
"""
