"""Fuzzing of every reader of user input: mutated inputs, an oracle, counted outcomes; `python -m tests.fuzz -h`."""
