"""Tests that start the ranks of a training as processes, in folders by subject.

The fixture `team` (conftest.py) forks ranks from a process that has everything imported. tests/support/ranks has its
code and tests/support/faults the faults that tests inject."""
