"""Inputs and references for tests of language models."""
