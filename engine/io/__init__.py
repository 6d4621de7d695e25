"""Atomic writes, hashes of files, strict readers of JSON and YAML, HTML pages. Imports nothing of the project."""
