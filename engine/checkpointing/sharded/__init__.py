"""Writes and reads checkpoints whose tensors are divided into shards, one part for each rank.

Imports `engine.distributed`, `engine.io` and `engine.optim`.
"""
