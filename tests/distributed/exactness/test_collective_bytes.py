"""The bytes that collectives of a step move equal the arithmetic of the predictions (benchmarks/network)."""

import json
from pathlib import Path

import pytest
import torch
import yaml
from lightning.pytorch import Callback

from benchmarks.network.prediction import Shards
from tests.support.families.colored_squares import LANGUAGE_MODEL, TOWER, write_config

pytestmark = pytest.mark.slow

COUNTED = ["--trainer.callbacks+=benchmarks.network.collective_bytes.CollectiveBytes"]
GATHER, SCATTER = "c10d::_allgather_base_", "c10d::_reduce_scatter_base_"
SUM = "_c10d_functional::all_reduce"


class Positions(Callback):
    """Writes the number of tokens of the last micro-batch, padding included."""

    def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
        positions = sum(part.rows.tokens.numel() for part in batch)
        (Path(trainer.default_root_dir) / "positions.json").write_text(json.dumps(positions))


def padded_numel(weight):
    """Return the size of a weight whose rows are divided over two ranks."""
    return weight.numel() + weight[0].numel() * (len(weight) % 2)


@pytest.fixture
def train(team, tmp_path):
    """Train two steps on two ranks; return the weights and what the collectives of the second step moved."""

    def run(strategy, *options):
        config = write_config(
            tmp_path,
            language_model={"config": LANGUAGE_MODEL, "activation_checkpointing": False},
            vision_tower={"config": TOWER, "trainable": "full"},
        )
        more = {
            "trainer": {
                "strategy": {"class_path": strategy, "init_args": {"state_dict_type": "full"}},
                "max_steps": 2,
                "limit_val_batches": 0,
            },
            "checkpoints": {"trainable_only": False},
            "data": {"init_args": {"num_samples": 16, "batch_size": 4}},
        }
        (tmp_path / "more.yaml").write_text(yaml.safe_dump(more))
        more_options = ["--config", str(tmp_path / "more.yaml"), *COUNTED, *options]
        pair = team("fit", *config, *more_options, name="pair", processes=2).succeeded(400)
        weights = torch.load(pair.folder / "checkpoints/last.ckpt", weights_only=True)["state_dict"]
        (step,) = json.loads((pair.folder / "collective_bytes.json").read_text())["steps"]
        return weights, step

    return run


def test_fsdp_moves_the_bytes_of_the_formula(train):
    weights, step = train("engine.strategies.fsdp.VerifiedFSDPStrategy")
    del weights["language_model.network.lm_head.weight"]  # the same as the embeddings
    layers = {name for name in weights if ".layers." in name and not name.startswith("projector.")}
    in_layers = sum(padded_numel(weights[name]) for name in layers)
    shards = Shards(in_layers=in_layers, others=sum(map(padded_numel, weights.values())) - in_layers)
    assert step[GATHER]["bytes"] == shards.gathered
    assert step[SCATTER]["bytes"] == shards.scattered


def test_tensor_parallelism_sums_the_bytes_of_the_formula(train, tmp_path):
    weights, step = train(
        "engine.strategies.tensor_parallel.TensorParallelStrategy", f"--trainer.callbacks+={__name__}.Positions"
    )
    positions = json.loads((tmp_path / "runs/pair/positions.json").read_text())
    shards = Shards(layers=2, width=LANGUAGE_MODEL["hidden_size"], tokens=positions // 2)  # a group's, on two ranks
    norms = step[SUM]["bytes"] - shards.states(2)
    assert 0 <= norms <= 6 * 4 * len(weights) and norms % 4 == 0, "six sums of the norms of weights, in float32"
