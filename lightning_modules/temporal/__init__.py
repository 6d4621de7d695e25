"""Temporal encoder + language model. Imports `lightning_modules.multimodal`."""
