from tests.conftest import TINY

STOP = [
    "--trainer.callbacks+", "EarlyStopping",
    "--trainer.callbacks.monitor", "val/ndcg@10",
    "--trainer.callbacks.mode", "max",
    "--trainer.callbacks.min_delta", "1",
    "--trainer.callbacks.patience",
]  # fmt: skip


def test_a_run_that_stopped_early_goes_on_with_more_patience(lockstep):
    """No epoch is better by 1, so a run stops when its patience ends."""
    options = [*TINY, "--trainer.max_epochs", "9"]
    stopped = lockstep("fit", *options, *STOP, "1", name="a")
    assert sorted(stopped.series("val/ndcg@10")) == [13, 26]
    resumed = lockstep("fit", *options, *STOP, "3", "--ckpt_path", "last", name="a")
    assert sorted(resumed.series("val/ndcg@10")) == [13, 26, 39, 52]
