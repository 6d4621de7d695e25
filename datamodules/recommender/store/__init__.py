"""Converted sequences on disk, memory-mapped by every rank. Imports reading and engine.io."""
