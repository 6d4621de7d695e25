"""Exchanges heartbeats, dumps stacks and receives signals, so that no failure leaves a rank waiting for another.

Imports `engine.distributed`, `engine.io`, `engine.lightning_internals`, `engine.system` and `engine.telemetry`.
"""
