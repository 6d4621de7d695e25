"""Turns samples into the batches of each rank: batch plan, samplers, streams, loaders, workers and bad samples.

Imports `engine.system`, `engine.determinism`, `engine.distributed`, `engine.health`, `engine.io`,
`engine.lightning_internals`, `engine.number_check` and `engine.telemetry`.
"""
