"""Provides what every family needs to train exactly: base classes of modules and data modules, and the packages below.

Imports none of the project's other top-level packages. Its packages, from bottom to top: `io`, `lightning_internals`,
`system`, `determinism` and `statistics`; `distributed` and `export`; `telemetry`; `health`, `optim`, `data` and
`checkpointing`; `strategies`.
"""
