"""Checks refused options and the size of buckets."""

from types import SimpleNamespace

import pytest
import torch
from jsonargparse import Namespace
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, SingleDeviceStrategy

from callbacks.performance.ddp_options import DDPOptions
from commands.cli.ddp_settings import process_count, with_ddp_settings
from engine.distributed.ddp_comm_hook import all_reduce_mean
from tests.conftest import REPOSITORY
from tests.support.fake_trainer import fake_trainer

PLAIN = SimpleNamespace(precision="32-true")


def set_up(strategy, precision=PLAIN, processes=2, **settings):
    trainer = fake_trainer(ranks=processes, strategy=strategy, precision_plugin=precision)
    DDPOptions(**settings).setup(trainer, None, "fit")


def strategy_for(strategy, processes=2, **ddp):
    return with_ddp_settings(strategy, Namespace(**ddp), processes)


@pytest.mark.parametrize("name", ["auto", "ddp", "ddp_find_unused_parameters_true"])
def test_the_bucket_size_is_an_argument_of_the_strategy_that_a_name_stands_for(name):
    built = strategy_for(name, bucket_mb=50)
    assert built.class_path == "lightning.pytorch.strategies.ddp.DDPStrategy"
    assert built.init_args.pop("bucket_cap_mb") == 50
    expected = {"ddp_find_unused_parameters_true": {"find_unused_parameters": True}}.get(name, {})
    assert vars(built.init_args) == {"start_method": "popen", **expected}


@pytest.mark.parametrize(
    ("strategy", "settings"),
    [("ddp", {"compression": "bf16"}), ("ddp", {}), ("fsdp", {"bucket_mb": 50}), ("auto", {"bucket_mb": 50})],
)
def test_other_strategies_stay_as_they_are(strategy, settings):
    processes = 1 if strategy == "auto" else 2
    assert strategy_for(strategy, processes, **settings) == strategy


def test_the_command_of_the_guide_sets_up(parser):
    """A strategy given as a class comes with all of DDP's settings, most of them as they are by default."""
    text = (REPOSITORY / "docs/tuning.md").read_text(encoding="utf-8")
    (command,) = [line for line in text.replace("\\\n", " ").splitlines() if "--trainer.strategy DDPStrategy" in line]
    options = command.split()
    options = options[options.index("fit") + 1 :]
    config = parser.parse_args(
        [str(REPOSITORY / option) if option.startswith("configs/") else option for option in options]
    )
    built = with_ddp_settings(config.trainer.strategy, config.ddp, 2)
    arguments = built.init_args
    assert arguments.bucket_cap_mb == 50
    assert arguments.gradient_as_bucket_view is True
    assert arguments.static_graph is False


def test_a_setting_that_is_given_twice_is_refused():
    def given(**arguments):
        return Namespace(class_path="lightning.pytorch.strategies.DDPStrategy", init_args=Namespace(**arguments))

    with pytest.raises(ValueError, match=r"sets bucket_cap_mb to 20 and trainer.strategy to 10: remove one"):
        strategy_for(given(bucket_cap_mb=10), bucket_mb=20)
    with pytest.raises(ValueError, match=r"sets ddp_comm_hook to bf16 and trainer.strategy to hook"):
        strategy_for(given(ddp_comm_hook="hook"), compression="bf16")
    assert strategy_for(given(bucket_cap_mb=20), bucket_mb=20).init_args.bucket_cap_mb == 20


@pytest.mark.parametrize(
    ("devices", "nodes", "expected"),
    [(4, 2, 8), ("2", 1, 2), ("0,3", 1, 2), ([0, 1], 2, 4), ("auto", 1, 1), (-1, 3, 3)],
)
def test_processes_on_cpus_are_counted_from_devices_and_nodes(devices, nodes, expected):
    assert process_count(devices, nodes, on_accelerator=False) == expected


@pytest.mark.parametrize("settings", [{"compression": "bf16"}, {"bucket_mb": 1}])
@pytest.mark.parametrize("kind", [FSDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy])
def test_other_strategies_are_refused(kind, settings):
    with pytest.raises(ValueError, match=f"settings of DDP, and trainer.strategy is {kind.__name__}"):
        set_up(object.__new__(kind), **settings)
    set_up(object.__new__(kind))  # without a setting there is nothing to refuse


def test_ddp_options_have_no_effect_with_one_rank(caplog):
    caplog.set_level("INFO", logger="lockstep")
    set_up(object.__new__(SingleDeviceStrategy), processes=1, compression="fp16", bucket_mb=1)
    assert "have no effect with one rank" in caplog.text


def test_fp16_needs_a_loss_scale():
    with pytest.raises(ValueError, match="loss scale of trainer.precision 16-mixed.*is 32-true"):
        set_up(DDPStrategy(), compression="fp16")
    set_up(DDPStrategy(), MixedPrecision("16-mixed", "cuda", scaler=torch.amp.GradScaler("cpu")), compression="fp16")


def test_gradients_of_16_bits_are_not_rounded_again():
    with pytest.raises(ValueError, match="have 16 bits already"):
        set_up(DDPStrategy(), HalfPrecision("bf16-true"), compression="bf16")


@pytest.mark.parametrize("size", [0, -1.0, float("nan"), float("inf")])
def test_a_bucket_has_a_size(size):
    with pytest.raises(ValueError, match="ddp.bucket_mb must be more than 0"):
        DDPOptions(bucket_mb=size)


class EqualGroup:
    """A group of processes that all have the same gradient, without a network."""

    def __init__(self, number):
        self.number = number

    def size(self):
        return self.number

    def all_reduce(self, sent, group, async_op):
        future = torch.futures.Future()
        future.set_result([sent.mul_(self.number)])
        return SimpleNamespace(get_future=lambda: future)


@pytest.mark.parametrize("sent_as", [torch.bfloat16, torch.float16])
def test_a_mean_is_divided_first_and_written_in_place(monkeypatch, sent_as):
    group = EqualGroup(1024)
    monkeypatch.setattr("torch.distributed.all_reduce", group.all_reduce)
    gradient = torch.tensor([60000.0, -1.0, 2.0**-10, 0.0])
    expected = gradient.to(sent_as).float()
    mean = all_reduce_mean(sent_as, gradient, group).wait()
    assert mean.data_ptr() == gradient.data_ptr()
    assert mean.dtype == torch.float32
    assert torch.isfinite(mean).all(), "summed before it was divided"
    torch.testing.assert_close(mean, expected, rtol=2.0**-8, atol=0)
