"""Counts where a training step would wait for a GPU. docs/measurements/ranks.md has the numbers."""

import pytest

import engine.distributed.step_counters
import engine.optim.global_loss_mean
import engine.optimizer_module
from tests.conftest import TINY
from tests.gpu.test_quickstarts import EXTRAS, config
from tests.support.device.device_waits import DeviceWaits
from tests.support.device.half_on_cpu import half_on_cpu
from tests.support.device.optional_packages import needs

GUARD = "callbacks/guards/finite_guard.py:on_before_optimizer_step"
LOSS = "lightning_modules/recommender/losses/next_item.py:cross_entropy"
FEATURES = "lightning_modules/multimodal/connector/merge_embeddings.py:merge_features_into_embeddings"
TOKENS = "lightning_modules/multimodal/language/language_model.py:_select_supervised"
DECODER = "lightning_modules/multimodal/language/language_model.py:decode"
SERIES = "lightning_modules/temporal/series_encoder.py:forward"

COMMON = ["--trainer.accelerator", "cpu", "--trainer.max_epochs", "-1", "--trainer.max_steps", "3"]
COMMON += ["--trainer.log_every_n_steps", "50", "--trainer.limit_val_batches", "0"]
COMMON += ["--trainer.enable_progress_bar", "false"]


@pytest.fixture
def waits_of_a_step(lockstep, monkeypatch):
    """Return the waits of the third step, by function: what sets up the first step is over."""
    for module in (engine.distributed.step_counters, engine.optim.global_loss_mean, engine.optimizer_module):
        monkeypatch.setattr(module, "is_host", lambda device: False)  # sums stay in tensors, as on a GPU
    counters = []
    start = DeviceWaits.on_train_batch_start

    def record(self, *arguments):
        counters.append(self)
        start(self, *arguments)

    monkeypatch.setattr(DeviceWaits, "on_train_batch_start", record)

    def count(*options):
        callback = f"--trainer.callbacks+={DeviceWaits.__module__}.DeviceWaits"
        lockstep("fit", *options, *COMMON, callback, name="counted")
        assert len(counters[0].steps) == 3
        return dict(counters[0].steps[2])

    return count


def test_the_engine_waits_once_a_step_to_read_the_norm(waits_of_a_step):
    clipping = ["--trainer.gradient_clip_val", "0.1"]
    assert waits_of_a_step(*TINY, *clipping) == {GUARD: 1, LOSS: 1}


def test_micro_batches_add_the_waits_of_their_loss_only(waits_of_a_step):
    micro_batches = ["--data.init_args.micro_batch_size", "4"]
    assert waits_of_a_step(*TINY, *micro_batches) == {GUARD: 1, LOSS: 4}


def test_in_fp16_the_scaler_waits_once_more(waits_of_a_step):
    waits = waits_of_a_step(*TINY, *half_on_cpu(scale=1024.0))
    scaler = {place: number for place, number in waits.items() if place not in (GUARD, LOSS)}
    assert waits[GUARD] == waits[LOSS] == 1
    assert list(scaler.values()) == [1]


def test_a_table_by_rows_waits_for_two_numbers_of_rows(waits_of_a_step):
    """The items of the micro-batch, and those whose gradient is not 0."""
    rows = ["--model.init_args.item_optimizer", "lazy_adamw", "--model.init_args.loss", "bce"]
    waits = waits_of_a_step(*TINY, *rows, "--data.init_args.num_negatives", "4")
    del waits["engine/optim/row_optimizer.py:update"]  # reads the count of its steps, which is on the host
    assert waits == {
        GUARD: 1,
        "lightning_modules/recommender/sparse_item_rows.py:used_items": 1,
        "engine/optim/row_table.py:collect_gradients": 1,
    }


FAMILIES = {
    "image_classifier": {},
    "vision_language": {FEATURES: 1, TOKENS: 1, DECODER: 1},
    "temporal": {FEATURES: 1, TOKENS: 1, DECODER: 1, SERIES: 1},
    "document_qa": {FEATURES: 1, TOKENS: 1, DECODER: 2},
}


@pytest.mark.slow
@pytest.mark.parametrize("family", [pytest.param(name, marks=needs(*EXTRAS[name])) for name in FAMILIES])
def test_a_family_waits_where_sizes_depend_on_values(waits_of_a_step, family):
    assert waits_of_a_step(*config(family)) == {GUARD: 1, **FAMILIES[family]}
