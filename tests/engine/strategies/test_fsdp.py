"""Tests FSDP in one process: refusals, devices and layers."""

from types import SimpleNamespace

import pytest
import torch
from lightning.fabric.plugins.environments import LightningEnvironment
from torch import nn
from torchmetrics import SumMetric

from callbacks.checkpointing.last_checkpoint import LastCheckpoint
from engine.strategies.fsdp import VerifiedFSDPStrategy, repeated_layers
from tests.support.fake_trainer import fake_trainer

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning")


def test_no_shard_is_refused():
    with pytest.raises(ValueError, match="NO_SHARD shards nothing: use strategy ddp"):
        VerifiedFSDPStrategy(sharding_strategy="NO_SHARD")


@pytest.mark.parametrize(
    ("offload", "device", "backend"),
    [(True, "cuda", "cpu:gloo,cuda:nccl"), (True, "cpu", "gloo"), (False, "cuda", "nccl")],
)
def test_offloaded_gradients_have_a_backend(monkeypatch, offload, device, backend):
    """NCCL has no collectives for tensors in host memory."""

    def connect(environment, name, **options):
        raise InterruptedError(name)

    monkeypatch.setattr("lightning.pytorch.strategies.model_parallel._init_dist_connection", connect)
    monkeypatch.setattr("engine.strategies.fsdp.atexit.register", lambda function: None)
    strategy = VerifiedFSDPStrategy(cpu_offload=offload)
    strategy.cluster_environment = LightningEnvironment()
    strategy.parallel_devices = [torch.device(device, 0)]
    strategy.accelerator = SimpleNamespace(setup_device=lambda device: None)
    with pytest.raises(InterruptedError, match=f"^{backend}$"):
        strategy.setup_environment()
    assert strategy.process_group_backend == backend  # as `connect_with_prefix` reads it


def test_metrics_follow_the_device_of_offloaded_weights(monkeypatch):
    strategy = VerifiedFSDPStrategy(cpu_offload=True)
    strategy.parallel_devices = [torch.device("meta")]
    monkeypatch.setattr("torch.distributed.fsdp.FSDPModule", nn.Module)  # as if sharded already
    module = nn.ModuleDict({"layer": nn.Linear(2, 2), "metrics": nn.ModuleList([SumMetric()])})
    strategy.setup_model(module)
    assert module["metrics"][0].sum_value.is_meta
    assert not module["layer"].weight.is_meta


def test_two_folders_are_needed():
    strategy = VerifiedFSDPStrategy()
    trainer = fake_trainer(checkpoint_callbacks=[LastCheckpoint(keep=1)])
    with pytest.raises(ValueError, match="last_checkpoint.keep and best_checkpoint.keep must be at least 2"):
        strategy.setup(trainer)


def test_repeated_layers_are_those_of_the_decoder_without_experts():
    """Experts are none: each process runs others."""
    experts = [nn.ModuleDict({"experts": nn.ModuleList([nn.Linear(2, 2), nn.Linear(2, 2)])}) for _ in range(2)]
    table, head = nn.Embedding(4, 2), nn.Linear(2, 4, bias=False)
    decoder = nn.ModuleDict({"table": table, "layers": nn.ModuleList([*experts, nn.Identity()])})
    assert repeated_layers(nn.ModuleDict({"decoder": decoder, "head": head})) == experts
