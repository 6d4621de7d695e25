"""torch's compiler stays out until something is compiled, and nothing is different then or before."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import REPOSITORY, TINY

EAGER = """
import sys, torch
import commands.cli
from commands import compiler_on_demand
from lightning.pytorch.utilities.compile import OptimizedModule, from_compiled, to_uncompiled
from lightning.pytorch.demos.boring_classes import BoringModel

def trained(kind):
    torch.manual_seed(0)
    layer = torch.nn.Linear(4, 3, bias=False)
    optimizer = kind(layer.parameters(), lr=0.1)
    def loss():
        optimizer.zero_grad()
        with torch.enable_grad():
            result = layer(torch.ones(2, 4)).square().sum()
            result.backward()
        return result
    for _ in range(3):
        optimizer.step(loss)
    assert torch.is_grad_enabled()
    optimizer.load_state_dict(optimizer.state_dict())
    return layer.weight.detach()

def replicated():
    torch.manual_seed(0)
    replica = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 3))
    replica(torch.ones(2, 4)).square().sum().backward()
    return replica.module.weight.grad

torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
gradient = replicated()
KINDS = [torch.optim.Adam, torch.optim.AdamW, torch.optim.SGD, torch.optim.Muon]
before = [trained(kind) for kind in KINDS]
layer = torch.nn.Linear(2, 2)
rate = torch.ones((), requires_grad=True)
differentiable = torch.optim.SGD([value := layer.weight.clone()], lr=rate, differentiable=True)
value.grad = torch.ones(2, 2)
differentiable.step()
assert value.requires_grad
assert not isinstance(layer, OptimizedModule)
assert "torch._dynamo" not in sys.modules

model = BoringModel()
compiled = torch.compile(model, backend="eager")
assert isinstance(compiled, OptimizedModule) and not isinstance(model, OptimizedModule)
assert to_uncompiled(from_compiled(compiled)) is model
assert torch._dynamo is sys.modules["torch._dynamo"] and torch._dynamo.config.recompile_limit
assert all(torch.equal(one, trained(kind)) for one, kind in zip(before, KINDS))
assert torch.equal(gradient, replicated())
assert torch._dynamo.utils.get_optimize_ddp_mode() == compiler_on_demand._Utils.get_optimize_ddp_mode()
torch.distributed.destroy_process_group()

optimizer = torch.optim.Adam(layer.parameters())
layer(torch.ones(2)).sum().backward()
torch.compile(optimizer.step, backend="eager")()
assert optimizer.state[layer.weight]["step"] == 1
print("the same")
"""

OTHER_VERSION = """
import sys
from commands.compiler_on_demand import import_without_compiler

import_without_compiler("frugal")
assert "torch._dynamo" not in sys.modules
import_without_compiler("demanding")
import torch, demanding
assert demanding.config is torch._dynamo.config and "torch._dynamo.config" in sys.modules
print("the same")
"""


MARKED_BY_TORCH = """
import sys, torch
import commands.cli
from commands import compiler_on_demand

@torch._disable_dynamo
def marked(number):
    return number + 1

with compiler_on_demand._stand_in():
    assert marked(1) == 2
assert "torch._dynamo" not in sys.modules
assert marked(1) == 2
import torch._dynamo
assert marked(1) == 2
print("the same")
"""


def python(program: str, folder: Path) -> str:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join((str(REPOSITORY), str(folder)))}
    command = [sys.executable, "-W", "ignore", "-c", program]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_training_needs_no_compiler(tmp_path):
    """Whatever a short training does, checkpoint and validation among it, the heavy parts of torch are left out."""
    arguments = ["train.py", "fit", *TINY, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "3"]
    arguments += ["--run_name", "run"]
    program = (
        f"import gc, runpy, sys\nsys.argv = {arguments}\n"
        f"runpy.run_path({str(REPOSITORY / 'train.py')!r}, run_name='__main__')\n"
        "heavy = 'torch._dynamo torch._inductor torch.distributed.fsdp torch.distributed.tensor torch.onnx '\n"
        "heavy += 'sympy networkx polars pandas pyarrow PIL transformers'\n"
        "print('heavy:', sorted(set(heavy.split()) & set(sys.modules)))\n"
        "print('garbage:', gc.isenabled(), gc.get_freeze_count() > 100_000)"
    )
    lines = python(program, tmp_path).splitlines()
    assert (tmp_path / "runs/run/checkpoints").is_dir()
    assert lines[-2:] == ["heavy: []", "garbage: True True"]


def test_optimizers_and_compiled_models_are_as_ever(tmp_path):
    assert python(EAGER, tmp_path) == "the same\n"


def test_what_torch_marks_can_be_called_while_the_compiler_is_stood_in_for(tmp_path):
    assert python(MARKED_BY_TORCH, tmp_path) == "the same\n"


@pytest.mark.parametrize("demand", ["from torch._dynamo import config", "import torch._dynamo.config as config"])
def test_a_module_that_asks_for_more_gets_the_compiler(tmp_path, demand):
    (tmp_path / "frugal.py").write_text("from torch._dynamo import OptimizedModule")
    (tmp_path / "demanding.py").write_text(demand)
    assert python(OTHER_VERSION, tmp_path) == "the same\n"
