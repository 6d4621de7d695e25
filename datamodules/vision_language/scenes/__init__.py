"""Renders scenes with questions and captions.

Imports `datamodules.vision_language.chat_file`, `datamodules.multimodal.synthetic_split` and `engine.determinism`.
"""
