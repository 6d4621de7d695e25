"""Generates manuals of devices, with questions and right answers.

Imports `datamodules.document_qa.types`, `datamodules.multimodal.synthetic_split`, `engine.determinism` and `engine.io`.
"""
