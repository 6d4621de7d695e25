"""Tests of the answers for `demo` and `chat`."""
