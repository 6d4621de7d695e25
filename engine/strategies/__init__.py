"""Provides Lightning strategies with verified checkpoints. Imports `engine.checkpointing` and the packages below it."""
