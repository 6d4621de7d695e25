"""Writes, verifies, finds and rotates checkpoints, and rolls back to them; `sharded` holds those of many files.

Imports `engine.io`, `engine.determinism`, `engine.distributed`, `engine.lightning_internals`, `engine.number_check`,
`engine.optim` and `engine.telemetry`.
"""
