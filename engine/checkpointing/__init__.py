"""Verified checkpoints: writing, checksums, discovery, rotation and rollback.

Imports `engine.io`, `engine.determinism`, `engine.distributed` and `engine.telemetry`.
"""
