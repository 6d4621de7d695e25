"""Readers of the temporal family's input that are fuzzed."""
