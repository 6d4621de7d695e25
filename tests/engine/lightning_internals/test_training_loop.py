"""Tests the contracts of the private names of Lightning's training loop: what each does in the installed version."""

import pytest
from lightning.pytorch import Callback

from engine.lightning_internals import training_loop as internals
from tests.engine.lightning_internals.tiny_training import INSTALLED, Model, Recorder, answers, loader, trainer


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
    assert len(pairs) >= 8, INSTALLED
    assert all(ours == theirs for ours, theirs in pairs), INSTALLED


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


def test_a_requested_validation_follows_the_last_step():
    class Request(Callback):
        def __init__(self):
            self.followed, self.validated = [], []

        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 3:
                internals.request_validation(trainer)
            self.followed.append(internals.validation_follows(trainer))

        def on_validation_end(self, trainer, pl_module):
            self.validated.append(trainer.global_step)

    callback = Request()
    settings = {"max_steps": 3, "max_epochs": -1, "check_val_every_n_epoch": 2, "num_sanity_val_steps": 0}
    trainer([callback], **settings).fit(Model(), loader(5), loader(1))
    assert (callback.followed, callback.validated) == ([False, False, True], [3]), INSTALLED


def test_micro_batches_are_counted_from_the_epoch_and_from_the_first_step():
    def ask(run):
        return (
            internals.micro_batch_index(run),
            internals.micro_batches_processed(run),
            internals.micro_batches_started(run),
        )

    found = answers(ask, batches=2, max_epochs=2)
    assert found == [(0, 1, 1), (1, 2, 2), (0, 1, 3), (1, 2, 4)], INSTALLED


def test_the_limit_of_steps_changes_while_a_training_runs():
    def ask(run):
        internals.set_max_steps(run, 3)
        return run.max_steps

    assert answers(ask, batches=4, max_steps=2) == [3, 3, 3], INSTALLED


@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch ended")
def test_a_validation_that_is_marked_as_pending_is_repeated_from_its_first_batch(tmp_path):
    """The first run saves within a validation; the second repeats it before its next step."""

    class Validation(Callback):
        def __init__(self):
            self.batches = []

        def on_validation_start(self, trainer, pl_module):
            internals.clear_pending_validation(trainer)

        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
            self.batches.append((trainer.global_step, batch_idx))

        def on_train_batch_end(self, trainer, *_):
            self.batches.append(trainer.global_step)

    class Stop(Validation):
        def on_validation_batch_end(self, trainer, pl_module, outputs, batch, batch_idx, dataloader_idx=0):
            super().on_validation_batch_end(trainer, pl_module, outputs, batch, batch_idx)
            if batch_idx == 1:
                internals.mark_validation_pending(trainer)
                trainer.save_checkpoint(tmp_path / "stopped.ckpt")

    settings = {"val_check_interval": 1, "num_sanity_val_steps": 0, "max_steps": 2}
    trainer([stopped := Stop()], **settings | {"max_steps": 1}).fit(Model(), loader(2), loader(3))
    assert stopped.batches == [1, (1, 0), (1, 1), (1, 2)], INSTALLED
    trainer([resumed := Validation()], **settings).fit(
        Model(), loader(2), loader(3), ckpt_path=tmp_path / "stopped.ckpt", weights_only=False
    )
    assert resumed.batches == [(1, 0), (1, 1), (1, 2), 2, (2, 0), (2, 1), (2, 2)], INSTALLED


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
    assert empty.on_train_batch_end is None
    assert empty.on_train_start is not None


def test_the_name_of_the_hook_is_set_as_lightning_sets_it():
    class Fast(internals.FastAttributes, Model):
        def on_train_batch_start(self, batch, batch_idx):
            names.append((self._current_fx_name, "_current_fx_name" in vars(self)))

    names, model = [], Fast()
    trainer().fit(model, loader(1), loader(1))
    assert names == [("on_train_batch_start", True)], INSTALLED
    assert model._current_fx_name is None, INSTALLED
    assert [name for name, _ in model.named_parameters()] == ["linear.weight", "linear.bias"]


def test_the_next_epoch_starts_with_its_first_batch():
    run = trainer(max_epochs=-1, max_steps=3)
    loop = run.fit_loop.epoch_loop
    run.fit_loop.restarting = True
    assert loop.restarting, INSTALLED
    assert loop.val_loop.restarting, INSTALLED
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
