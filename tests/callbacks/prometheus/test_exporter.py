"""Tests the health of a run, the metrics of a training, and that there is no endpoint by default."""

import math
import socket
import sys
import threading
import urllib.error

import pytest
from lightning.pytorch import Callback

from callbacks.health.watchdog import PREPARING
from callbacks.prometheus.exporter import PrometheusExporter
from tests.conftest import TINY
from tests.support.outputs.metrics_endpoint import a_watch, get, parsed
from tests.support.ports import free_ports


@pytest.mark.parametrize(
    "phase, still, patience, well",
    [
        (PREPARING, 1e5, math.inf, True),  # a download
        ("start-up", 1e5, 600, True),  # the watchdog's
        ("start-up, timing threads", 1e5, math.inf, True),
        ("first step", 1e5, 600, True),
        ("training", 599, 300, True),
        ("training", 601, 300, False),
        ("training", 601, 3600, False),
        ("validation", 601, 300, False),
        ("saving", 3599, 3600, True),  # by watchdog.start_timeout
        ("saving", 3601, 3600, False),
        ("saving", 601, 60, False),
        ("saving", 601, math.inf, False),  # no watchdog
        ("end of validation", 3599, 3600, True),
    ],
)
def test_health_depends_on_phase_and_idle_time(phase, still, patience, well):
    endpoint = PrometheusExporter(port=8900)
    endpoint._watch = a_watch(phase, still, patience)
    assert endpoint.health()[0] is well
    assert endpoint.health()[1].startswith(f"{phase}, step 7, {still:.1f} s")


class ScrapeAt(Callback):
    """Requests metrics and health at a step of the training."""

    def __init__(self, step, port):
        self.step, self.port, self.answers = step, port, {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            self.answers = {path: get(self.port, path) for path in ("/metrics", "/healthz")}


@pytest.fixture
def scraped(lockstep, monkeypatch):
    """Run a training and scrape it at a step: ``scraped(step, *options) -> (run, samples, health)``."""
    from commands.cli import main

    add = main.add_default_callbacks

    def run(step, *options):
        (port,) = free_ports(1)
        scrape = ScrapeAt(step, port)

        def add_scrape(trainer, *settings):
            add(trainer, *settings)
            trainer.callbacks.append(scrape)

        monkeypatch.setattr(main, "add_default_callbacks", add_scrape)
        done = lockstep("fit", *TINY, "--prometheus.port", str(port), *options, name="a")
        with pytest.raises(urllib.error.URLError, match="refused"):
            get(port, "/healthz")
        return done, parsed(scrape.answers["/metrics"][2]), scrape.answers["/healthz"]

    return run


def test_a_training_exports_what_its_files_have(scraped):
    # An epoch has 13 steps.
    run, found, health = scraped(15, "--trainer.max_steps", "16")
    value = {name: sample.value for (name, detail), sample in found.items() if detail is None}
    assert health[0] == 200
    assert health[2].startswith("training, step 15, ")
    assert value["lockstep_train_loss"] == run.series("train/loss")[15]
    assert value["lockstep_val_ndcg_at_10"] == run.series("val/ndcg@10")[13]
    assert (value["lockstep_step"], value["lockstep_steps_total"], value["lockstep_epoch"]) == (15, 15, 1)
    assert (value["lockstep_planned_steps"], value["lockstep_world_size"]) == (16, 1)
    assert value["lockstep_checkpoint_size_bytes"] > 1000
    assert value["lockstep_restarts"] == 0
    assert value["lockstep_resident_memory_bytes"] > 1e8
    assert value["lockstep_stalled_limit_seconds"] == 600
    assert found["lockstep_phase", "training"].value == 1
    assert found["lockstep_events_total", "run_started"].value == 1
    assert found["lockstep_events_total", "run_failed"].value == 0
    assert found["lockstep_run_info", None].labels["command"] == "fit"
    assert {(sample.labels["run"], sample.labels["rank"]) for sample in found.values()} == {("a", "0")}

    # A resumed start counts its own steps. Events before the trainer was created are counted.
    (run.folder / "checkpoints/best.ckpt").unlink()  # of step 13 or 16
    for path in (run.folder / "checkpoints").glob("last.ckpt"):
        path.write_bytes(path.read_bytes()[:-9])
    _, found, _ = scraped(15, "--trainer.max_steps", "16", "--ckpt_path", "last")
    assert (found["lockstep_step", None].value, found["lockstep_steps_total", None].value) == (15, 2)
    assert found["lockstep_events_total", "checkpoint_skipped"].value == 1
    assert found["lockstep_events_total", "run_resumed"].value == 1


def test_there_is_no_endpoint_by_default(parser, lockstep, monkeypatch):
    assert parser.get_defaults().prometheus.port is None
    assert parser.get_defaults().prometheus.host == "127.0.0.1"
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # it is not even needed
    lockstep("fit", *TINY, "--trainer.max_steps", "1", name="a")
    assert "lockstep-metrics" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"port": 0}, "prometheus.port must be 1 to 65535, or null for no endpoint; got 0"),
        ({"port": 70000}, "prometheus.port must be 1 to 65535"),
        ({"stalled_after": 0}, "prometheus.stalled_after must be more than 0, got 0"),
    ],
)
def test_wrong_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        PrometheusExporter(**settings)


def test_an_address_that_is_not_available(lockstep, monkeypatch):
    monkeypatch.setattr("callbacks.prometheus.exporter._BIND_TIMEOUT", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ValueError, match=f"rank 0 cannot listen on 127.0.0.1, port {port} .*in use"):
            lockstep("fit", *TINY, "--prometheus.port", port, name="a")
    with pytest.raises(ValueError, match="rank 0 cannot listen on 192.0.2.1, port 8900 "):
        lockstep("fit", *TINY, "--prometheus.port", "8900", "--prometheus.host", "192.0.2.1", name="a")
