"""Tests of the page of `demo`."""
