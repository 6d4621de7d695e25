"""Tests the contracts of torch's private names about tensors."""

import pytest
import torch

from engine.lightning_internals import tensors as internals
from tests.engine.lightning_internals.tiny_training import INSTALLED


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
        assert seen.shape == query.shape, INSTALLED
        assert seen.untyped_storage().nbytes() == 2**29, INSTALLED
    constant = torch.ones(64)
    with internals.without_values():
        assert (torch.empty(8, 64) + constant).shape == (8, 64), INSTALLED
    assert type(torch.ones(1)) is torch.Tensor, INSTALLED


def test_integers_and_masks_keep_values_where_other_tensors_have_none():
    with internals.without_values(), internals.ValuedIntegers():
        numbers, large = torch.arange(6), torch.zeros(1 << 17)
        mask = numbers % 2 == 0
        assert mask.tolist() == [True, False] * 3, INSTALLED
        states = large[:24].reshape(6, 4)
        assert states[mask].shape == (3, 4), f"a mask gives the shape of what it selects ({INSTALLED})"
        states[mask] = 1.0
        with pytest.raises(RuntimeError):
            states.tolist()


def test_simulated_ranks_transfer_nothing():
    from torch import distributed

    with internals.simulated_ranks(4):
        assert (distributed.get_rank(), distributed.get_world_size()) == (0, 4), INSTALLED
        distributed.all_reduce(torch.ones(2))
    assert not distributed.is_initialized(), INSTALLED


def test_fused_optimizers_unscale_gradients():
    weights = [torch.zeros(2, requires_grad=True)]
    assert internals.unscales_gradients(torch.optim.AdamW(weights, fused=True)), INSTALLED
    assert not internals.unscales_gradients(torch.optim.AdamW(weights)), INSTALLED


@pytest.mark.slow
def test_a_graph_is_whole_under_ddp():
    from torch._dynamo import config

    before = config.optimize_ddp
    with internals.whole_graphs():
        assert config.optimize_ddp is False, f"another setting decides ({INSTALLED})"
        assert before is not False, f"another setting decides ({INSTALLED})"
    assert config.optimize_ddp == before
