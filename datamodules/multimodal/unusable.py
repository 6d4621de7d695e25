"""What is wrong with one sample, as against with the run."""


class UnusableSample(ValueError):
    """A sample that cannot be used: its row is malformed, its image cannot be decoded. Names file and row."""
