"""Serves a run's metrics and health over HTTP, for Prometheus and for probes.

A NaN or infinite metric, such as the loss of a diverged run, is exported as it is.

Imports `callbacks.health`, `callbacks.logging` and `engine`. Needs prometheus_client (extra `monitoring`).
"""
