"""Histories of interactions: reading, storing, splitting and batching. Imports engine only."""
