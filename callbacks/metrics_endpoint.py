"""A run's metrics for Prometheus, and its health for probes, over HTTP from every process."""

import errno
import logging
import math
import time
from typing import TYPE_CHECKING

from lightning.pytorch import Callback, LightningModule, Trainer

from callbacks.run_metrics import RunMetrics
from callbacks.watchdog import PREPARING, Watchdog
from engine.early_lines import repeat_early_lines
from engine.gather import gathered_objects

if TYPE_CHECKING:
    from callbacks.metrics_server import MetricsServer

log = logging.getLogger("lockstep")

_STARTING = (PREPARING, "start-up", "sanity check", "first step")
_BATCH_BY_BATCH = ("training", "validation", "test", "prediction")

_PATIENCE = 5.0
"""Seconds: after a restart the process that had the port may still be ending."""


class MetricsEndpoint(Callback):
    """`GET /metrics` for Prometheus and `GET /healthz` for probes, from every process, while it does its command.

    Each process listens on `port` plus its local rank, as soon as the processes have found each other; the figures
    that a run logs are the first process's. docs/monitoring.md says what there is. /healthz is 200 while the process
    starts or gets on, 503 when it has stood still for too long: later than the watchdog, which knows who is at fault
    and writes stacks, where a probe only kills. What may take as long as `watchdog.start_timeout` (a checkpoint being
    saved, the end of a validation) may here.

    Args:
        port: of the first process of each machine, the next one has the next port; null: nobody listens.
        host: the address to listen on; 127.0.0.1 is for this machine alone, 0.0.0.0 for everybody who can reach it (in a container): there is no password.
        stalled_after: seconds without a step, or a batch of an evaluation, after which /healthz says 503.
    """  # noqa: E501

    _server: "MetricsServer | None" = None
    _metrics: RunMetrics | None = None

    def __init__(self, port: int | None = None, host: str = "127.0.0.1", stalled_after: float = 600) -> None:
        if port is not None and not 1 <= port <= 65535:
            raise ValueError(f"metrics_endpoint.port is 1 to 65535, or null for no endpoint; got {port}")
        if stalled_after <= 0:
            raise ValueError(f"metrics_endpoint.stalled_after is a number of seconds above 0; got {stalled_after}")
        self.port, self.host, self.stalled_after = port, host, stalled_after

    def attach(self, trainer: Trainer, watchdog: Watchdog) -> None:
        """Makes it listen as soon as the processes are connected and watched, before the data are prepared."""
        if self.port is None:
            return
        connect = trainer.strategy.setup_environment

        def setup_environment() -> None:
            connect()
            self._open(trainer, watchdog)

        trainer.strategy.setup_environment = setup_environment  # type: ignore[method-assign]

    def _open(self, trainer: Trainer, watchdog: Watchdog) -> None:
        """
        Raises:
            ValueError: on all processes, if one of them cannot listen.
        """
        assert self.port is not None and watchdog.watch is not None
        self._watch = watchdog.watch
        self._metrics = RunMetrics(trainer, self._watch, self.limit)
        refused = [said for said in gathered_objects(self._listen(trainer, self._metrics)) if said]
        if refused:
            self._close()
            raise ValueError(f"metrics_endpoint: {refused[0]}")
        repeat_early_lines(log, self._metrics.events)
        log.addHandler(self._metrics.events)
        host = f"[{self.host}]" if ":" in self.host else self.host
        log.info("metrics and health of process 0: http://%s:%d/metrics and /healthz", host, self.port)

    def _listen(self, trainer: Trainer, metrics: RunMetrics) -> str | None:
        """Why this process cannot; None when it does."""
        try:
            from callbacks.metrics_server import MetricsServer
        except ModuleNotFoundError as error:
            return f"{error.name} is not installed: pip install -e '.[monitoring]'"
        port = self.port + trainer.local_rank  # type: ignore[operator]
        deadline = time.monotonic() + _PATIENCE
        while self._server is None:
            try:
                self._server = MetricsServer(self.host, port, metrics, self.health)
            except (OSError, OverflowError) as error:
                if time.monotonic() < deadline and getattr(error, "errno", None) == errno.EADDRINUSE:
                    time.sleep(0.1)
                    continue
                return (
                    f"process {trainer.global_rank} cannot listen on {self.host}, port {port} ({error}); another "
                    "--metrics_endpoint.port or --metrics_endpoint.host, or null as the port for no endpoint"
                )
        return None

    # -- health ------------------------------------------------------------------------------------------------------

    def limit(self) -> float:
        """For how many seconds this process may stand still now."""
        phase, patience = self._watch.phase, self._watch.patience
        if phase in _STARTING:
            return math.inf
        if phase in _BATCH_BY_BATCH or math.isinf(patience):
            return self.stalled_after
        return max(self.stalled_after, patience)

    def health(self) -> tuple[bool, str]:
        """Whether all is well, and a line that says why."""
        watch, limit = self._watch, self.limit()
        said = f"{watch.phase}, step {watch.step}, {watch.still:.1f} s since it last got on"
        return watch.still <= limit, said if math.isinf(limit) else f"{said} (limit {limit:g} s)"

    # -- what a run does ---------------------------------------------------------------------------------------------

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        if self._metrics is not None and trainer.is_global_zero:
            trainer.loggers = [*trainer.loggers, self._metrics.figures]

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self._metrics is not None:
            self._metrics.begin_training()

    def on_exception(self, trainer: Trainer, pl_module: LightningModule, exception: BaseException) -> None:
        self._close()

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self._close()

    def _close(self) -> None:
        if self._metrics is not None:
            log.removeHandler(self._metrics.events)
        server, self._server, self._metrics = self._server, None, None
        if server is not None:
            server.close()
