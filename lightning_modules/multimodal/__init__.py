"""Shared by the language-model families: base module, image features, generation and its evaluation.

Imports `engine`, `datamodules.multimodal` and its own packages.
"""
