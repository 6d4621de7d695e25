"""Exchanges heartbeats, dumps stacks and receives signals, so that no failure leaves a rank waiting for another.

Imports `engine.distributed`, `engine.system` and `engine.telemetry`.
"""
