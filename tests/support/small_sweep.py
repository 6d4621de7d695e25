"""A sweep of the recommender's quickstart in its smallest form."""

SWEEP = """\
metric: val/ndcg@10
direction: maximize
trials: 3
parameters:
  model.init_args.learning_rate: {type: float, low: 1e-4, high: 1e-2, log: true}
"""
SMALL = [
    "--data.init_args.marketplace.num_users",
    "64",
    "--data.init_args.marketplace.num_items",
    "60",
    "--data.init_args.batch_size",
    "16",
    "--model.init_args.hidden_size",
    "8",
    "--trainer.max_epochs",
    "2",
    "--trainer.accelerator",
    "cpu",
    "--last_checkpoint.every_n_steps",
    "1",
]
