"""Fixture `forked_variants` of the benchmarks, for the machines of the network benchmark."""

from tests.benchmarks.conftest import forked_variants, server

__all__ = ["forked_variants", "server"]
