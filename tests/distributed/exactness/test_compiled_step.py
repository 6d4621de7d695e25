"""A recommender's compiled step on two ranks: the losses of one rank, in one graph."""

import pytest

from tests.support.device.graph_counts import count_graphs
from tests.support.outputs.metric_series import assert_same_series
from tests.support.ranks.exact_training import EXACT

STEPS = ["--trainer.max_steps", "8", "--trainer.limit_val_batches", "0", "--threads", "1"]


@pytest.mark.slow
def test_two_ranks_train_as_one(lockstep, team):
    """DDP does not cut the graph. The plain step is that of the compiled step up to rounding."""
    plain = lockstep("fit", *EXACT, *STEPS, name="plain")
    compiled = [*STEPS, "--model.init_args.compile_step", "true", *count_graphs("cpu")]
    pair = team("fit", *EXACT, *compiled, "--data.init_args.micro_batch_size", "4", name="pair", processes=2)
    assert pair.end(150) == [0, 0], pair.output
    assert "= 2 ranks x 4 samples x 2 accumulation steps" in pair.output
    assert pair.output.count("compiled graphs: 1\n") == 2
    assert_same_series(pair, plain, tolerance=1e-4)
