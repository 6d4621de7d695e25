"""A contract for each private name of Lightning, torch and jsonargparse: what it does in the installed version."""

import argparse
import inspect
import os
import signal
import subprocess
import sys
import threading
from datetime import timedelta
from importlib.metadata import version
from types import SimpleNamespace

import pytest
import torch
from lightning.fabric.strategies.launchers.subprocess_script import _ChildProcessObserver
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from lightning.pytorch.loggers import TensorBoardLogger
from lightning.pytorch.profilers import PyTorchProfiler
from lightning.pytorch.strategies import DDPStrategy, ModelParallelStrategy, SingleDeviceStrategy, Strategy
from lightning.pytorch.trainer.connectors.signal_connector import _SignalConnector
from torch.utils.data import DataLoader, TensorDataset

from engine import lightning_internals as internals

INSTALLED = ", ".join(f"{name} {version(name)}" for name in ("lightning", "torch", "jsonargparse", "tensorboard"))


class Model(LightningModule):
    def __init__(self):
        super().__init__()
        self.linear, self.configured = torch.nn.Linear(1, 1), 0

    def configure_model(self):
        self.configured += 1

    def training_step(self, batch, batch_idx):
        return self.linear(batch[0]).sum()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)


class Recorder(Callback):
    """The answers of a function after each micro-batch."""

    def __init__(self, ask):
        self.ask, self.answers = ask, []

    def on_train_batch_end(self, trainer, *_):
        self.answers.append(self.ask(trainer))


def loader(batches):
    return DataLoader(TensorDataset(torch.ones(batches, 1)))


def trainer(callbacks=None, **settings):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    return Trainer(
        accelerator="cpu", callbacks=callbacks, enable_model_summary=False, **{**quiet, "max_epochs": 1, **settings}
    )


def answers(ask, batches=5, **settings):
    recorder = Recorder(ask)
    trainer([recorder], **settings).fit(Model(), loader(batches), loader(1))
    return recorder.answers


# -- training loop -----------------------------------------------------------------------------------------------------


def test_the_last_micro_batch_is_known_also_at_the_end_of_an_epoch():
    found = answers(internals.is_last_micro_batch, accumulate_grad_batches=2)
    assert found == [False, True, False, True, True], INSTALLED


def test_log_steps_follow_the_interval():
    found = answers(internals.is_log_step, batches=4, log_every_n_steps=2)
    assert found == [False, True, False, True], INSTALLED


@pytest.mark.parametrize("interval", [0, 1, 3])
def test_log_steps_are_those_of_lightning(interval):
    def ask(run):
        found = [(internals.is_log_step(run), run._logger_connector.should_update_logs)]
        run.should_stop = run.global_step == 4
        return [*found, (internals.is_log_step(run), run._logger_connector.should_update_logs)]

    pairs = sum(answers(ask, log_every_n_steps=interval), [])
    assert len(pairs) >= 8 and all(ours == theirs for ours, theirs in pairs), INSTALLED


def test_log_steps_are_counted_from_the_number_that_is_set():
    def ask(run):
        found = internals.is_log_step(run)
        internals.set_log_step(run, 0)  # Lightning adds 1 after this hook
        return found

    assert answers(ask, batches=4, log_every_n_steps=2) == [False, True, True, True], INSTALLED


def test_metrics_of_a_step_are_unlogged_until_its_hooks_have_run():
    class Logging(Model):
        def training_step(self, batch, batch_idx):
            self.log("number", float(batch_idx), on_step=True, on_epoch=False)
            return super().training_step(batch, batch_idx)

        def on_validation_end(self):
            after.append(internals.unlogged_metrics(self.trainer))

    recorder, after = Recorder(internals.unlogged_metrics), []
    trainer([recorder], log_every_n_steps=1, num_sanity_val_steps=0).fit(Logging(), loader(3), loader(1))
    assert recorder.answers == [{"number": 0.0}, {"number": 1.0}, {"number": 2.0}], INSTALLED
    assert after == [{}], INSTALLED


def test_a_validation_is_known_before_it_begins():
    found = answers(internals.validation_follows, batches=4, val_check_interval=2)
    assert found == [False, True, False, True], INSTALLED


def test_a_requested_stop_waits_for_the_least_number_of_steps():
    def stop(run):
        run.should_stop = True
        return internals.stops_early(run)

    assert answers(stop, batches=4, min_epochs=0, min_steps=3) == [False, False, True], INSTALLED


def test_empty_hooks_of_a_step_are_skipped_and_others_run():
    class Overriding(Recorder):
        on_before_backward = Recorder.on_train_batch_end

    empty, overriding = Callback(), Overriding(lambda run: run.global_step)
    internals.skip_empty_hooks([empty, overriding])
    trainer([empty, overriding]).fit(Model(), loader(2), loader(1))
    assert overriding.answers == [0, 1, 1, 2], INSTALLED
    assert empty.on_train_batch_end is None and empty.on_train_start is not None


def test_the_name_of_the_hook_is_set_as_lightning_sets_it():
    class Fast(internals.FastAttributes, Model):
        def on_train_batch_start(self, batch, batch_idx):
            names.append((self._current_fx_name, "_current_fx_name" in vars(self)))

    names, model = [], Fast()
    trainer().fit(model, loader(1), loader(1))
    assert names == [("on_train_batch_start", True)] and model._current_fx_name is None, INSTALLED
    assert [name for name, _ in model.named_parameters()] == ["linear.weight", "linear.bias"]


def test_the_next_epoch_starts_with_its_first_batch():
    run = trainer(max_epochs=-1, max_steps=3)
    loop = run.fit_loop.epoch_loop
    run.fit_loop.restarting = True
    assert loop.restarting and loop.val_loop.restarting, INSTALLED
    internals.start_next_epoch(run)
    assert not (loop.restarting or loop.val_loop.restarting), INSTALLED
    loop.batch_progress.current.ready = 5
    loop.reset()
    assert loop.batch_progress.current.ready == 0, INSTALLED


def test_a_model_can_be_configured_early():
    class Early(Callback):
        def setup(self, trainer, pl_module, stage):
            internals.configure_model(trainer)
            seen.append(pl_module.configured)

    seen = []
    trainer([Early()], max_steps=1).fit(Model(), loader(1), loader(1))
    assert seen == [1], INSTALLED


def test_a_module_without_a_trainer_is_not_attached():
    model = Model()
    assert not internals.is_attached(model), INSTALLED
    trainer(max_steps=1).fit(model, loader(1), loader(1))
    assert internals.is_attached(model), INSTALLED


def test_fused_optimizers_unscale_gradients():
    weights = [torch.zeros(2, requires_grad=True)]
    assert internals.unscales_gradients(torch.optim.AdamW(weights, fused=True)), INSTALLED
    assert not internals.unscales_gradients(torch.optim.AdamW(weights)), INSTALLED


# -- processes ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_rank_is_known_before_there_is_a_trainer():
    program = "from engine.lightning_internals import process_rank; print(process_rank())"
    environment = {**os.environ, "RANK": "3"}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.strip() == "3", INSTALLED + done.stderr


@pytest.mark.parametrize(("method", "copies"), [("fork", True), ("spawn", True), ("popen", False)])
def test_strategies_that_copy_the_process_are_recognized(method, copies):
    strategy = trainer(strategy=DDPStrategy(start_method=method), devices=2).strategy
    assert internals.copies_this_process(strategy) is copies, INSTALLED


def test_a_function_runs_after_the_ranks_are_connected_and_before_data_are_prepared():
    class Data(Model):
        def prepare_data(self):
            order.append("prepare")

    order = []
    run = trainer(max_steps=1)
    internals.after_setup_environment(run.strategy, lambda: order.append("first"))
    internals.after_setup_environment(run.strategy, lambda: order.append("second"))
    run.fit(Data(), loader(1), loader(1))
    assert order == ["first", "second", "prepare"], INSTALLED


def test_lightning_handles_no_signals():
    assert "self._signal_connector.register_signal_handlers()" in inspect.getsource(Trainer._run), INSTALLED
    assert "_sigterm_notifier_fn" in inspect.getsource(_SignalConnector.register_signal_handlers), INSTALLED
    run = trainer()
    loop = run.fit_loop.epoch_loop
    assert "self._broadcast_sigterm_tensor()" in inspect.getsource(type(loop).advance), INSTALLED
    before = signal.getsignal(signal.SIGTERM)
    internals.disable_signal_handlers(run)
    run._signal_connector.register_signal_handlers()
    assert signal.getsignal(signal.SIGTERM) is before and not run.received_sigterm, INSTALLED
    assert loop._broadcast_sigterm_tensor() is None, INSTALLED


def test_a_renamed_signal_handler_is_an_error():
    run = SimpleNamespace(
        _signal_connector=SimpleNamespace(register_signal_handlers=print),
        fit_loop=SimpleNamespace(epoch_loop=SimpleNamespace()),
    )
    with pytest.raises(AttributeError, match=f"Lightning {version('lightning')} has no .*_broadcast_sigterm_tensor"):
        internals.disable_signal_handlers(run)


def test_the_observer_of_children_does_not_kill():
    failed = SimpleNamespace(poll=lambda: 1, returncode=1, pid=0, send_signal=None)
    observer = _ChildProcessObserver(main_pid=0, child_processes=[failed], sleep_period=0)
    gate = threading.Event()
    observer.run = lambda: gate.wait(20)
    observer.start()
    try:
        internals.disable_child_observer()
        assert observer._child_processes == [], INSTALLED
        assert _ChildProcessObserver._run(observer) is True, INSTALLED
    finally:
        gate.set()
        observer.join(20)


@pytest.mark.parametrize("kind", [DDPStrategy, ModelParallelStrategy])
def test_a_strategys_time_limit_is_set_unless_the_user_gave_one(kind):
    limit, given = timedelta(minutes=10), timedelta(minutes=7)
    strategy = kind()
    assert internals.set_strategy_timeout(strategy, limit) and internals.strategy_timeout(strategy) == limit, INSTALLED
    strategy = kind(timeout=given)
    assert not internals.set_strategy_timeout(strategy, limit), INSTALLED
    assert internals.strategy_timeout(strategy) == given, INSTALLED
    assert not internals.set_strategy_timeout(SingleDeviceStrategy("cpu"), limit), INSTALLED


def test_the_backend_of_the_process_group():
    strategy = ModelParallelStrategy()
    internals.set_process_group_backend(strategy, "cpu:gloo,cuda:nccl")
    assert strategy.process_group_backend == "cpu:gloo,cuda:nccl", INSTALLED


def test_the_process_groups_time_limit_and_store():
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        internals.set_group_timeout(timedelta(seconds=77))
        group = torch.distributed.group.WORLD._get_backend(torch.device("cpu"))
        assert group.options._timeout == timedelta(seconds=77), INSTALLED
        internals.default_store().set("key", "value")
        assert internals.default_store().get("key") == b"value", INSTALLED
    finally:
        torch.distributed.destroy_process_group()


# -- tensors and data --------------------------------------------------------------------------------------------------


def test_versions_of_modules_are_copied():
    source = torch.nn.BatchNorm1d(2).state_dict()
    target = type(source)(source)
    assert not hasattr(target, "_metadata"), INSTALLED
    internals.copy_module_versions(source, target)
    assert target._metadata[""]["version"] == 2, INSTALLED
    internals.copy_module_versions({}, {})


def test_tensors_are_changed_in_place():
    tensors = [torch.ones(2), torch.full((1, 3), 2.0)]
    internals.multiply_all(tensors, torch.tensor(0.5))
    assert [tensor.flatten()[0].item() for tensor in tensors] == [0.5, 1.0], INSTALLED
    internals.copy_all(tensors, [torch.zeros(2), torch.ones(1, 3)])
    assert [tensor.sum().item() for tensor in tensors] == [0, 3], INSTALLED


def test_the_workers_of_a_loader():
    iterator = iter(DataLoader(TensorDataset(torch.ones(2, 1)), num_workers=1))
    (worker,) = internals.worker_processes(iterator)
    assert worker.is_alive(), INSTALLED
    assert internals.worker_processes(iter(loader(1))) == [], INSTALLED


# -- tensors without values --------------------------------------------------------------------------------------------


def test_a_dispatch_mode_sees_each_operation():
    class Recorder(internals.DispatchMode):
        seen = ()

        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            self.seen += (func.overloadpacket.__name__,)
            return func(*args, **(kwargs or {}))

    with Recorder() as recorder:
        torch.ones(2).add(1)
    torch.ones(2)
    assert recorder.seen == ("ones", "add"), INSTALLED


def test_tensors_without_values_have_shapes_and_fused_attention():
    with internals.without_values():
        query = torch.empty(1, 2, 2**20, 64)
        seen = torch.nn.functional.scaled_dot_product_attention(query, query, query, is_causal=True)
        assert seen.shape == query.shape and seen.untyped_storage().nbytes() == 2**29, INSTALLED
    constant = torch.ones(64)
    with internals.without_values():
        assert (torch.empty(8, 64) + constant).shape == (8, 64), INSTALLED
    assert type(torch.ones(1)) is torch.Tensor, INSTALLED


def test_simulated_ranks_transfer_nothing():
    from torch import distributed

    with internals.simulated_ranks(4):
        assert (distributed.get_rank(), distributed.get_world_size()) == (0, 4), INSTALLED
        distributed.all_reduce(torch.ones(2))
    assert not distributed.is_initialized(), INSTALLED


# -- parsers, loggers and writers --------------------------------------------------------------------------------------


def test_the_options_of_a_parser():
    parser = LightningArgumentParser()
    parser.add_argument("--some.option", type=int)
    assert "--some.option" in internals.option_names(parser), INSTALLED
    assert "-h" in internals.option_names(argparse.ArgumentParser()), INSTALLED


def test_the_null_experiment_ignores_calls():
    experiment = internals.NullExperiment()
    experiment.add_scalar("name", 1.0)
    experiment["key"] = 1
    assert internals.flatten_config({"a": {"b": 1}}, ".") == {"a.b": 1}, INSTALLED


def test_the_file_of_a_summary_writer_is_replaced(tmp_path):
    class File:
        def __init__(self, path):
            self.path, self.written = path, b""

        def write(self, data):
            self.written += data

        def flush(self):
            pass

        close = flush

    opened = []
    writer = TensorBoardLogger(tmp_path, name="", version="").experiment
    internals.replace_event_file(writer, lambda path: opened.append(File(path)) or opened[-1])
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert opened[0].path.startswith(str(tmp_path)) and b"loss" in opened[0].written, INSTALLED


@pytest.mark.parametrize(
    ("owner", "name", "parameters"),
    [
        (Strategy, "_setup_model", ["self", "model"]),
        (LightningCLI, "_setup_parser_kwargs", ["self", "parser_kwargs"]),
        (LightningCLI, "_add_subcommands", ["self", "parser", "kwargs"]),
        (LightningCLI, "_prepare_subcommand_parser", ["self", "klass", "subcommand", "kwargs"]),
        (LightningCLI, "_parse_ckpt_path", ["self"]),
        (LightningCLI, "_run_subcommand", ["self", "subcommand"]),
        (LightningCLI, "_get", ["self", "config", "key", "default"]),
        (LightningCLI, "_parser", ["self", "subcommand"]),
        (PyTorchProfiler, "_delete_profilers", ["self"]),
        (PyTorchProfiler, "_stats_to_str", ["self", "stats"]),
    ],
)
def test_private_methods_that_subclasses_override_or_call(owner, name, parameters):
    method = getattr(owner, name, None)
    assert method is not None, f"{owner.__name__}.{name} is gone: {INSTALLED}"
    assert list(inspect.signature(method).parameters) == parameters, INSTALLED


def test_private_attributes_that_subclasses_read(tmp_path):
    assert TensorBoardLogger(tmp_path)._experiment is None, INSTALLED
