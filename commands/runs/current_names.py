"""Maps names of earlier versions, in their configs and run directories, to the current names.

Imports nothing heavy: the report reads configs without torch and without a parser.
"""

from collections.abc import Callable, Mapping
from typing import Any

CLASS_PATHS: Mapping[str, str] = {
    "callbacks.auto_micro_batch.AutoMicroBatch": "callbacks.performance.auto_micro_batch.AutoMicroBatch",
    "callbacks.bad_samples.BadSamples": "callbacks.guards.bad_sample_limit.BadSampleLimit",
    "callbacks.best_checkpoint.BestCheckpoint": "callbacks.checkpointing.best_checkpoint.BestCheckpoint",
    "callbacks.config_over_checkpoint.ConfigOverCheckpoint": (
        "callbacks.checkpointing.early_stopping_resume.EarlyStoppingFromConfig"
    ),
    "callbacks.due_validation.DueValidation": "callbacks.checkpointing.pending_validation.ResumePendingValidation",
    "callbacks.example_log.ExampleLog": "callbacks.logging.sample_previews.SamplePreviewLogger",
    "callbacks.finite_guard.FiniteGuard": "callbacks.guards.finite_guard.FiniteGuard",
    "callbacks.gradient_coverage.GradientCoverage": "callbacks.guards.unused_parameters.UnusedParameterCheck",
    "callbacks.gradient_exchange.GradientExchange": "callbacks.performance.ddp_options.DDPOptions",
    "callbacks.last_checkpoint.LastCheckpoint": "callbacks.checkpointing.last_checkpoint.LastCheckpoint",
    "callbacks.memory.Memory": "callbacks.health.memory_monitor.MemoryMonitor",
    "callbacks.metrics_endpoint.MetricsEndpoint": "callbacks.prometheus.exporter.PrometheusExporter",
    "callbacks.mlflow_record.MLflow": "callbacks.trackers.mlflow.MLflow",
    "callbacks.prediction_file.PredictionFile": "callbacks.logging.prediction_writer.PredictionWriter",
    "callbacks.preemption.Preemption": "callbacks.health.preemption.Preemption",
    "callbacks.replica_parity.ReplicaParity": "callbacks.guards.replica_consistency.ReplicaConsistencyCheck",
    "callbacks.results_table.ResultsTable": "callbacks.logging.results_table.ResultsTable",
    "callbacks.stragglers.Stragglers": "callbacks.performance.stragglers.Stragglers",
    "callbacks.tensorboard.TensorBoard": "callbacks.trackers.tensorboard.TensorBoard",
    "callbacks.throughput.Throughput": "callbacks.performance.throughput.Throughput",
    "callbacks.watchdog.Watchdog": "callbacks.health.watchdog.Watchdog",
    "callbacks.weights_and_biases.WeightsAndBiases": "callbacks.trackers.wandb.WeightsAndBiases",
    "commands.environment.VariablesEnvironment": "commands.launch.env_variables_cluster.EnvVariablesEnvironment",
    "commands.profiling.TracingProfiler": "commands.cli.profiler.TracingProfiler",
    "engine.checkpoints.DurableCheckpointIO": "engine.checkpointing.checkpoint_io.VerifiedCheckpointIO",
    "engine.sharded_strategy.ShardedStrategy": "engine.strategies.fsdp.VerifiedFSDPStrategy",
    "datamodules.temporal.datamodule.ResourceTimelines": "datamodules.temporal.timelines.datamodule.ResourceTimelines",
    "lightning_modules.document_qa.module.DocumentReader": (
        "lightning_modules.document_qa.reader_module.DocumentReader"
    ),
    "lightning_modules.document_qa.page_retriever.PageRetriever": (
        "lightning_modules.document_qa.retriever_module.PageRetriever"
    ),
    "lightning_modules.temporal.module.TimelineReader": "lightning_modules.temporal.module.SeriesLanguageModel",
}
"""{old class path: class path now}."""

OPTION_GROUPS: Mapping[str, str] = {
    "example_log": "sample_previews",
    "gradient_coverage": "unused_parameters",
    "gradients": "ddp",
    "metrics_endpoint": "prometheus",
    "replica_parity": "replica_consistency",
}
"""{old name of a group of options: current name}."""

OPTIONS: Mapping[str, str] = {
    "asking": "questions",
    "augmentation.unneeded": "augmentation.drop_irrelevant",
    "decay_share": "decay_fraction",
    "describing_epochs": "caption_epochs",
    "exam": "synthesis",
    "fit": "resize_mode",
    "manuals.parts": "manuals.parts_per_chapter",
    "predict_at": "predict_request_time",
    "questions.kinds": "questions.task_mix",
    "questions.letters": "questions.answer_letter_weights",
    "row_tokens": "packed_length",
    "smoothing": "label_smoothing",
    "synthesis.mix": "synthesis.task_mix",
    "tasks.question_mix": "tasks.task_mix",
}
"""{old key of an option below the groups of `OPTION_OWNERS`: current key}; both keys have the current parents."""

DISTINCT_OPTIONS: Mapping[str, str] = {old: OPTIONS[old] for old in ("decay_share", "describing_epochs", "row_tokens")}
"""Old names that are replaced in every class, and on the command line, where the class is not known.

A class of the user inherits these options, and is not likely to have others of these names. The other old names, such
as `fit`, are replaced in configs of Lockstep's classes only.
"""

OPTION_OWNERS = frozenset({"model", "data", "init_args"})
"""Groups that have the options of `OPTIONS`. A key below any other group is the user's own and keeps its name."""

_COMMANDS = ("fit", "validate", "test", "predict")
"""A config may have all settings of a command below its name."""

_CLASS_NAMES = {"TimelineReader": "SeriesLanguageModel"}

VALUES: Mapping[str, Mapping[str, str]] = {
    "class_path": {**CLASS_PATHS, **_CLASS_NAMES},
    "model": _CLASS_NAMES,
    "tiling": {"places": "tile_positions"},
}
"""{last part of an option's key: {old name of its value: current name}}."""

REMOVED_OPTIONS: Mapping[str, str] = {"gradients.static_graph": "DDPStrategy has the argument static_graph"}
"""Option, as in a config -> what to use instead. Its value is ignored."""


def rename_groups(config: Mapping[str, object], on_rename: Callable[[str], None] = lambda old: None) -> dict[str, Any]:
    """Return a loaded config in which all groups have their current names.

    Args:
        config: the whole config, or any other mapping, which is returned as it is.
        on_rename: called with the old name of each renamed group.
    """
    renamed: dict[str, Any] = {}
    for key, value in config.items():
        if key in OPTION_GROUPS and isinstance(value, Mapping):
            on_rename(key)
            key = OPTION_GROUPS[key]
            # A file that has both names sets options of one group.
            value = {**renamed.get(key, {}), **value}
        elif isinstance(renamed.get(key), dict) and isinstance(value, Mapping):
            value = {**renamed[key], **value}
        renamed[key] = value
    return renamed


def current_key(
    key: str, options: Mapping[str, str] = OPTIONS, on_rename: Callable[[str], None] = lambda old: None
) -> str:
    """Return a dotted key with the current names of its options; its first group as it is, see `rename_groups`.

    Args:
        key: whole key of an option, or of a part of it.
        options: names to replace, as in `OPTIONS`.
        on_rename: called with each replaced key of `options`.
    """
    words = key.split(".")
    first = 1 if words[0] in _COMMANDS else 0
    start = next((index for index in range(first, len(words)) if words[index] not in OPTION_OWNERS), len(words))
    if start == first:
        return key  # it is of neither the model nor the data
    for end in range(start + 1, len(words) + 1):
        old = ".".join(words[start:end])
        if old in options:
            on_rename(old)
            words[start:end] = options[old].split(".")
    return ".".join(words)


def current_option(key: str) -> str:
    """Return the dotted key of an option with the current names of its group and its last part."""
    group, dot, option = current_key(key).partition(".")
    return f"{OPTION_GROUPS.get(group, group)}{dot}{option}"


def current_value(key: str, value: Any) -> Any:
    """Return the current name of an option's value, or the value itself if it was not renamed.

    Args:
        key: key of the option, with or without the groups before it, and with or without `--`.
        value: value in a config or on a command line.
    """
    names = VALUES.get(key.removeprefix("--").rpartition(".")[2])
    return names.get(value, value) if names and isinstance(value, str) else value
