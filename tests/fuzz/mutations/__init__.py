"""Mutations by byte, by line, by field of a table and by node of a JSON value."""
