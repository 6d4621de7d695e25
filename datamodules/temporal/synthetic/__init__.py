"""Generates series and questions about them.

Imports `datamodules.temporal.text`, `datamodules.temporal.channels`, `datamodules.multimodal.synthetic_split` and
`engine.determinism`.
"""
