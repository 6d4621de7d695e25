"""LightningModules of the families, and their networks.

Imports `engine`, and the batches and interfaces of `datamodules`.
"""
