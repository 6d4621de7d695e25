"""When probes are told that all is well, what a training tells, and that nobody listens unless told to."""

import math
import socket
import sys
import threading

import pytest
from lightning.pytorch import Callback

from callbacks.metrics_endpoint import MetricsEndpoint
from callbacks.watchdog import PREPARING
from tests.conftest import TINY
from tests.metrics import a_watch, get, parsed
from tests.slurm.cluster import free_ports


@pytest.mark.parametrize(
    "phase, still, patience, well",
    [
        (PREPARING, 1e5, math.inf, True),  # a download
        ("start-up", 1e5, 600, True),  # the watchdog's
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
def test_health(phase, still, patience, well):
    endpoint = MetricsEndpoint(port=8900)
    endpoint._watch = a_watch(phase, still, patience)
    assert endpoint.health()[0] is well
    assert endpoint.health()[1].startswith(f"{phase}, step 7, {still:.1f} s")


class AskAt(Callback):
    """Asks for metrics and health while the training is at a step."""

    def __init__(self, step, port):
        self.step, self.port, self.answers = step, port, {}

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        if trainer.global_step == self.step:
            self.answers = {path: get(self.port, path) for path in ("/metrics", "/healthz")}


@pytest.fixture
def asked(lockstep, monkeypatch):
    """Runs a training with an endpoint that is asked at a step: ``asked(step, *options) -> (run, samples, health)``."""
    from commands import cli

    add = cli.add_own_callbacks

    def run(step, *options):
        (port,) = free_ports(1)
        asking = AskAt(step, port)

        def add_asking(trainer, *settings):
            add(trainer, *settings)
            trainer.callbacks.append(asking)

        monkeypatch.setattr(cli, "add_own_callbacks", add_asking)
        done = lockstep("fit", *TINY, "--metrics_endpoint.port", str(port), *options, name="a")
        with pytest.raises(OSError):
            get(port, "/healthz")
        return done, parsed(asking.answers["/metrics"][2]), asking.answers["/healthz"]

    return run


def test_a_training_says_what_its_files_say(asked):
    # An epoch has 13 steps.
    run, found, health = asked(15, "--trainer.max_steps", "16")
    value = {name: sample.value for (name, detail), sample in found.items() if detail is None}
    assert health[0] == 200 and health[2].startswith("training, step 15, ")
    assert value["lockstep_train_loss"] == run.series("train/loss")[15]
    assert value["lockstep_val_ndcg_at_10"] == run.series("val/ndcg@10")[13]
    assert (value["lockstep_step"], value["lockstep_steps_total"], value["lockstep_epoch"]) == (15, 15, 1)
    assert (value["lockstep_planned_steps"], value["lockstep_processes"]) == (16, 1)
    assert value["lockstep_checkpoint_size_bytes"] > 1000 and value["lockstep_restarts"] == 0
    assert value["lockstep_resident_memory_bytes"] > 1e8 and value["lockstep_standstill_limit_seconds"] == 600
    assert found["lockstep_phase", "training"].value == 1
    assert found["lockstep_events_total", "run_started"].value == 1
    assert found["lockstep_events_total", "run_failed"].value == 0
    assert found["lockstep_run_info", None].labels["command"] == "fit"
    assert {(sample.labels["run"], sample.labels["process"]) for sample in found.values()} == {("a", "0")}

    # A resumed start counts its own steps; what was said before the trainer was made is among its events.
    for path in (run.folder / "checkpoints").glob("last.ckpt"):
        path.write_bytes(path.read_bytes()[:-9])
    _, found, _ = asked(15, "--trainer.max_steps", "16", "--ckpt_path", "last")
    assert (found["lockstep_step", None].value, found["lockstep_steps_total", None].value) == (15, 2)
    assert found["lockstep_events_total", "checkpoint_passed_over"].value == 1
    assert found["lockstep_events_total", "run_resumed"].value == 1


def test_nobody_listens_unless_told_to(parser, lockstep, monkeypatch):
    assert parser.get_defaults().metrics_endpoint.port is None
    assert parser.get_defaults().metrics_endpoint.host == "127.0.0.1"
    monkeypatch.setitem(sys.modules, "prometheus_client", None)  # it is not even needed
    lockstep("fit", *TINY, "--trainer.max_steps", "1", name="a")
    assert "lockstep-metrics" not in {thread.name for thread in threading.enumerate()}


@pytest.mark.parametrize(
    "settings, said",
    [
        ({"port": 0}, "metrics_endpoint.port is 1 to 65535, or null for no endpoint; got 0"),
        ({"port": 70000}, "metrics_endpoint.port is 1 to 65535"),
        ({"stalled_after": 0}, "metrics_endpoint.stalled_after is a number of seconds above 0; got 0"),
    ],
)
def test_wrong_settings(settings, said):
    with pytest.raises(ValueError, match=said):
        MetricsEndpoint(**settings)


def test_what_cannot_be_listened_on(lockstep, monkeypatch):
    monkeypatch.setattr("callbacks.metrics_endpoint._PATIENCE", 0.2)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        with pytest.raises(ValueError, match=f"process 0 cannot listen on 127.0.0.1, port {port} .*in use"):
            lockstep("fit", *TINY, "--metrics_endpoint.port", port, name="a")
    with pytest.raises(ValueError, match="process 0 cannot listen on 192.0.2.1, port 8900 "):
        lockstep("fit", *TINY, "--metrics_endpoint.port", "8900", "--metrics_endpoint.host", "192.0.2.1", name="a")
    monkeypatch.delitem(sys.modules, "callbacks.metrics_server")
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ValueError, match=r"prometheus_client is not installed: pip install -e '.\[monitoring\]'"):
        lockstep("fit", *TINY, "--metrics_endpoint.port", "8900", name="a")
