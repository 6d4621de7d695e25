"""Tests the division of the batch by the ranks that are to be started."""

from jsonargparse import Namespace

from commands.doctor.launch_plan import LaunchPlan
from commands.doctor.training.batch_division import divide_batch


def test_a_config_with_tensor_parallelism_divides_the_batch_by_groups():
    strategy = Namespace(class_path="TensorParallelStrategy", init_args=Namespace(tensor_parallel=4))
    trainer = Namespace(accelerator="cpu", devices=8, num_nodes=1, strategy=strategy)
    config = Namespace(trainer=trainer, data=Namespace(init_args=Namespace(batch_size=16)))
    launched = {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8"}
    launched |= {"MASTER_ADDR": "a", "MASTER_PORT": "1"}
    division = divide_batch(config, LaunchPlan(), launched)
    assert division.finding.found == "global batch 16 = 2 groups of 4 ranks x 8 samples x 1 accumulation step"
