"""Writes files atomically, hashes them, reads JSON and YAML strictly, builds HTML. Imports nothing of the project."""
