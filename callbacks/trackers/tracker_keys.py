"""Lists the keys of the experiment trackers for programs that import none of them, such as the report."""

TRACKER_KEYS = ("wandb", "mlflow")
"""`ExperimentTracker.KEY` of each tracker of the registry: its key in a config, and its folder in a run's folder."""
