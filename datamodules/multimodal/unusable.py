"""What is wrong with one sample, as against with the run."""

from engine.bad_sample import BadSample


class UnusableSample(BadSample):
    """A chat that cannot be used: its row is malformed, its image cannot be decoded. Names file and row."""


class KnownUnusable(UnusableSample):
    """A sample of which it was known, and allowed, before the run that it cannot be used: it is left out uncounted."""
