"""Writes, verifies, finds and rotates checkpoints, and rolls back to them.

Imports `engine.io`, `engine.determinism`, `engine.distributed` and `engine.telemetry`.
"""
