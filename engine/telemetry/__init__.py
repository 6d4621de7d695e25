"""Log events, their JSON lines, and previews of samples.

Imports `engine.determinism` and `engine.distributed`.
"""
