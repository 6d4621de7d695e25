"""What is wrong with one document, as against with the run."""


class BrokenDocument(ValueError):
    """A document that cannot be read: damaged, encrypted, empty, too large. Says why, without its name."""
