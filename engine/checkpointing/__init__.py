"""Writes, verifies, finds and rotates checkpoints, and rolls back to them.

Imports `engine.io`, `engine.determinism`, `engine.distributed`, `engine.lightning_internals`, `engine.optim` and
`engine.telemetry`.
"""
