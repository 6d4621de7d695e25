"""Fixtures: `fit` trains in this process and raises the error itself; `serve` serves metrics over HTTP."""

import pytest

from callbacks.prometheus.metrics_server import MetricsServer
from tests.support.outputs.metrics_endpoint import a_run
from tests.support.ports import free_ports


@pytest.fixture
def fit(lockstep):
    """Runs `fit` and hands the CollectiveError on that the command line would turn into an exit code."""

    def run(*options, name="a"):
        try:
            return lockstep("fit", *options, name=name)
        except SystemExit as end:
            assert end.code == 1
            raise end.__cause__ from None

    return run


@pytest.fixture
def serve():
    """Serves a run's metrics: ``serve(metrics, health) -> port``."""
    servers = []

    def start(metrics=None, health=lambda: (True, "healthy")):
        (port,) = free_ports(1)
        servers.append(MetricsServer("127.0.0.1", port, metrics or a_run(), health))
        return port

    yield start
    for server in servers:
        server.close()
