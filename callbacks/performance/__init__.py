"""Measures throughput and stragglers; sets micro-batch size, CPU threads and DDP communication.

Imports `callbacks.health` and `engine`.
"""
