"""Defines log events and their JSON lines, and keeps previews of samples.

Imports `engine.determinism`, `engine.distributed` and `engine.io`.
"""
