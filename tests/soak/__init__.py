"""Random kills of short trainings, after which each run must end as if nothing had happened: `python -m tests.soak`."""
