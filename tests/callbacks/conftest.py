"""`fit`: a training in this process whose end is the error itself."""

import pytest


@pytest.fixture
def fit(lockstep):
    """Runs `fit` and hands the AgreedFailure on that the command line would turn into an exit code."""

    def run(*options, name="a"):
        try:
            return lockstep("fit", *options, name=name)
        except SystemExit as end:
            assert end.code == 1
            raise end.__cause__ from None

    return run
