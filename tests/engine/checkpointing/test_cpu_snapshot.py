"""A snapshot on the CPU is a copy that keeps ties between weights, and uses its memory again."""

import torch

from engine.checkpointing.cpu_snapshot import Snapshot


def test_a_snapshot_is_a_copy():
    snapshot = Snapshot()
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    module.add_module("tied", module[0])
    shared = {"state_dict": module.state_dict(), "views": [torch.arange(12.0).view(3, 4).t()], "step": 3}
    taken = snapshot.copy_to_cpu(shared)
    assert taken["state_dict"].keys() == shared["state_dict"].keys()
    assert taken["step"] == 3
    assert taken["state_dict"]._metadata == shared["state_dict"]._metadata, "versions of the modules"
    for name, tensor in shared["state_dict"].items():
        assert torch.equal(taken["state_dict"][name], tensor)
        assert taken["state_dict"][name].data_ptr() != tensor.data_ptr()
    assert torch.equal(taken["views"][0], shared["views"][0])
    assert taken["state_dict"]["tied.weight"].data_ptr() == taken["state_dict"]["0.weight"].data_ptr(), "stored once"
    again = snapshot.copy_to_cpu(shared)
    addresses = {tensor.data_ptr() for tensor in taken["state_dict"].values()}
    assert {tensor.data_ptr() for tensor in again["state_dict"].values()} == addresses, "the memory is used again"
