"""Checks of a config: its errors, pretrained weights, storage, and one step of the training.

Imports `commands.cli` and the packages below it.
"""
