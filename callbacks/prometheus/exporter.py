"""Serves a run's metrics to Prometheus and its health to probes, over HTTP from every rank."""

import errno
import logging
import math
import time
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from callbacks.health.watchdog import PREPARING, Watchdog
from callbacks.prometheus.metrics import RunMetrics
from engine.distributed.collectives import all_gather_objects
from engine.lightning_internals.processes import after_setup_environment
from engine.number_check import check_number
from engine.telemetry.startup_log_buffer import replay_startup_log

if TYPE_CHECKING:
    from callbacks.prometheus.metrics_server import MetricsServer

log = logging.getLogger("lockstep")

_STARTING = (PREPARING, "start-up", "sanity check", "first step")
_BATCHWISE = ("training", "validation", "test", "prediction")

_BIND_TIMEOUT = 5.0
"""Seconds to retry a port in use. After a restart, the previous process may still be ending."""


class PrometheusExporter(Callback):
    """Serves `GET /metrics` for Prometheus and `GET /healthz` for probes, from every rank, during a command.

    Each rank listens on `port` plus its local rank as soon as the ranks are connected. Rank 0 has the metrics that the
    run logs. docs/monitoring.md lists all metrics.

    /healthz returns 200 while the process starts or makes progress, and 503 after `stalled_after` seconds without
    progress. The watchdog's timeout should be shorter: the watchdog names the rank at fault and writes stacks, where a
    probe only kills. Phases that may take `watchdog.start_timeout` (saving a checkpoint, the end of a validation) may
    take as long here.

    Args:
        port: port of local rank 0; null: no endpoint.
        host: address to listen on; 127.0.0.1 is reachable from this machine only, 0.0.0.0 from the network (in a
            container). There is no password.
        stalled_after: seconds without a step, or a batch of an evaluation, after which /healthz returns 503.
    """

    _server: "MetricsServer | None" = None
    _metrics: RunMetrics | None = None

    def __init__(self, port: int | None = None, host: str = "127.0.0.1", stalled_after: float = 600) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise ValueError(f"prometheus.port must be 1 to 65535, or null for no endpoint; got {port}")
        check_number("prometheus.stalled_after", stalled_after, above=0)
        self.port, self.host, self.stalled_after = port, host, stalled_after

    def attach(self, trainer: Trainer, watchdog: Watchdog) -> None:
        """Listen as soon as the ranks are connected and watched, before the data are prepared."""
        if self.port is None:
            return
        # Local ranks are known from then on, and data may still take hours to prepare.
        after_setup_environment(trainer.strategy, lambda: self._open(trainer, watchdog))

    def _open(self, trainer: Trainer, watchdog: Watchdog) -> None:
        """Start the server and the collection of events.

        Raises:
            ValueError: on all ranks, if any rank cannot listen.
        """
        assert self.port is not None and watchdog.monitor is not None
        self._watch = watchdog.monitor
        self._metrics = RunMetrics(trainer, self._watch, self.stall_limit)
        error = self._listen(trainer, self.port + trainer.local_rank, self._metrics)
        # All ranks take part, so that all of them refuse the run if one cannot listen.
        errors = [text for text in all_gather_objects(error) if text]
        if errors:
            self._close()
            raise ValueError(f"prometheus: {errors[0]}")
        # Events that were logged before the server existed are counted, too.
        replay_startup_log(log, self._metrics.events)
        log.addHandler(self._metrics.events)
        host = f"[{self.host}]" if ":" in self.host else self.host  # an IPv6 address in a URL
        log.info("metrics and health of rank 0: http://%s:%d/metrics and /healthz", host, self.port)

    def _listen(self, trainer: Trainer, port: int, metrics: RunMetrics) -> str | None:
        """Start the server. Return the error message, or None."""
        # Imported here, because prometheus_client is optional.
        from callbacks.prometheus.metrics_server import MetricsServer

        deadline = time.monotonic() + _BIND_TIMEOUT
        while self._server is None:
            try:
                self._server = MetricsServer(self.host, port, metrics, self.health)
            except (OSError, OverflowError) as error:
                if time.monotonic() < deadline and getattr(error, "errno", None) == errno.EADDRINUSE:
                    time.sleep(0.1)
                    continue
                return (
                    f"rank {trainer.global_rank} cannot listen on {self.host}, port {port} ({error}); "
                    "change --prometheus.port or --prometheus.host, or set the port to null"
                )
        return None

    # -- health ------------------------------------------------------------------------------------------------------

    def stall_limit(self) -> float:
        """Return the seconds that this process may spend in its current phase without progress."""
        phase, max_idle = self._watch.phase, self._watch.max_idle
        # A start has no steps; its limits are the watchdog's.
        if phase.startswith(_STARTING):
            return math.inf
        # Batches have a short limit. Other phases may take as long as the watchdog allows.
        if phase in _BATCHWISE or math.isinf(max_idle):
            return self.stalled_after
        return max(self.stalled_after, max_idle)

    def health(self) -> tuple[bool, str]:
        """Return whether the process makes progress, and a line that describes its state."""
        watch, limit = self._watch, self.stall_limit()
        state = f"{watch.phase}, step {watch.step}, {watch.idle:.1f} s without progress"
        return watch.idle <= limit, state if math.isinf(limit) else f"{state} (limit {limit:g} s)"

    # -- hooks -------------------------------------------------------------------------------------------------------

    @override
    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._metrics is not None and trainer.is_global_zero:
            trainer.loggers = [*trainer.loggers, self._metrics.logged]

    @override
    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._metrics is not None:
            self._metrics.begin_training()

    @override
    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    @override
    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._metrics is not None:
            log.removeHandler(self._metrics.events)
        server, self._server, self._metrics = self._server, None, None
        if server is not None:
            server.close()
