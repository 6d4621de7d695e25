"""Atomic writes of files and directories, hashes of files. Imports nothing of the project."""
