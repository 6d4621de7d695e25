"""How a run ends when it cannot go on."""


class AgreedFailure(RuntimeError):
    """Raised by every process at the same step and for the same reason; the first one says why, all exit with 1."""
