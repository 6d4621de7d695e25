"""Heartbeats between ranks, stack dumps, signals and exit codes: no failure leaves a rank waiting for another.

Imports `engine.distributed`, `engine.system` and `engine.telemetry`.
"""
