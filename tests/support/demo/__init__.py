"""Loads the answers of a run as `demo` does, and serves their page."""
