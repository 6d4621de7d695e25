"""What is refused, and what a bucket comes to."""

from types import SimpleNamespace

import pytest
import torch
from lightning.pytorch.plugins.precision import HalfPrecision, MixedPrecision
from lightning.pytorch.strategies import DDPStrategy, DeepSpeedStrategy, FSDPStrategy, SingleDeviceStrategy

from callbacks.gradient_exchange import GradientExchange
from engine.gradient_mean import mean_in
from tests.conftest import REPOSITORY

PLAIN = SimpleNamespace(precision="32-true")


def set_up(strategy, precision=PLAIN, processes=2, **settings):
    trainer = SimpleNamespace(strategy=strategy, precision_plugin=precision, world_size=processes)
    exchange = GradientExchange(**settings)
    exchange.setup(trainer, None, "fit")
    exchange.setup(trainer, None, "fit")  # a trainer may fit twice
    return getattr(strategy, "_ddp_kwargs", None)


def test_settings_reach_ddp():
    assert set_up(DDPStrategy(), bucket_mb=50, static_graph=True) == {"bucket_cap_mb": 50, "static_graph": True}
    assert set_up(DDPStrategy(), compression="bf16") == set_up(DDPStrategy()) == {}


def test_the_command_of_the_guide_sets_up(parser):
    """A strategy given as a class comes with all of DDP's settings, most of them as they are by default."""
    text = (REPOSITORY / "docs/tuning.md").read_text(encoding="utf-8")
    (command,) = [line for line in text.replace("\\\n", " ").splitlines() if "--trainer.strategy DDPStrategy" in line]
    options = command.split()
    options = options[options.index("fit") + 1 :]
    config = parser.parse_args([str(REPOSITORY / one) if one.startswith("configs/") else one for one in options])
    ddp = set_up(DDPStrategy(**config.trainer.strategy.init_args.as_dict()), **config.gradients.as_dict())
    assert ddp["bucket_cap_mb"] == 50 and ddp["gradient_as_bucket_view"] is True and ddp["static_graph"] is False


@pytest.mark.parametrize("settings", [{"compression": "bf16"}, {"bucket_mb": 1}, {"static_graph": True}])
@pytest.mark.parametrize("kind", [FSDPStrategy, DeepSpeedStrategy, SingleDeviceStrategy])
def test_other_strategies_are_refused(kind, settings):
    with pytest.raises(ValueError, match=f"settings of DDP, and trainer.strategy is {kind.__name__}"):
        set_up(object.__new__(kind), **settings)
    set_up(object.__new__(kind))  # without a setting there is nothing to refuse


def test_one_process_may_have_any(caplog):
    caplog.set_level("INFO", logger="lockstep")
    set_up(object.__new__(SingleDeviceStrategy), processes=1, compression="fp16", bucket_mb=1, static_graph=True)
    assert "nobody to exchange them with" in caplog.text


def test_what_is_said_twice_is_refused():
    with pytest.raises(ValueError, match=r"by trainer.strategy: bucket_cap_mb \(20 and 10\): leave one out"):
        set_up(DDPStrategy(bucket_cap_mb=10), bucket_mb=20)
    with pytest.raises(ValueError, match=r"ddp_comm_hook \(bf16 and <built-in"):
        set_up(DDPStrategy(ddp_comm_hook=print), compression="bf16")


def test_fp16_needs_a_loss_scale():
    with pytest.raises(ValueError, match="loss scale of trainer.precision 16-mixed.*with 32-true"):
        set_up(DDPStrategy(), compression="fp16")
    set_up(DDPStrategy(), MixedPrecision("16-mixed", "cuda", scaler=torch.amp.GradScaler("cpu")), compression="fp16")


def test_gradients_of_16_bits_are_not_rounded_again():
    with pytest.raises(ValueError, match="have 16 bits already"):
        set_up(DDPStrategy(), HalfPrecision("bf16-true"), compression="bf16")


@pytest.mark.parametrize("size", [0, -1.0, float("nan"), float("inf")])
def test_a_bucket_has_a_size(size):
    with pytest.raises(ValueError, match="gradients.bucket_mb must be more than 0"):
        GradientExchange(bucket_mb=size)


class Others:
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
def test_a_mean_is_divided_first_and_keeps_its_place(monkeypatch, sent_as):
    group = Others(1024)
    monkeypatch.setattr("torch.distributed.all_reduce", group.all_reduce)
    gradient = torch.tensor([60000.0, -1.0, 2.0**-10, 0.0])
    expected = gradient.to(sent_as).float()
    mean = mean_in(sent_as, gradient, group).wait()
    assert mean.data_ptr() == gradient.data_ptr() and mean.dtype == torch.float32
    assert torch.isfinite(mean).all(), "summed before it was divided"
    torch.testing.assert_close(mean, expected, rtol=2.0**-8, atol=0)
