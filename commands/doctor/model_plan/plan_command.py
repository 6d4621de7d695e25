"""Runs `python train.py doctor --plan ...`, with or without a config."""

import sys
from argparse import ArgumentError
from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

from commands.doctor.model_plan.cluster import Cluster
from engine.system.extras import require_extras
from engine.system.installation import PROGRAM


def run_plan(cluster: Cluster, settings: Sequence[str], as_json: bool) -> None:
    """Print the plan of the model of a config, or the plans of the Qwen2.5 series.

    Args:
        cluster: the GPUs.
        settings: arguments of the training, as `--config FILE`; empty without a config.
        as_json: print a JSON object instead of tables.

    Raises:
        ValueError: packages are missing, the config is wrong, or its model is not a pretrained language model.
    """
    require_extras({"language": "--plan", "bits": "--plan"})
    # Imported here, so that --help and wrong options do not wait for torch.
    from rich.console import Console

    from commands.doctor.model_plan import plan_output
    from commands.doctor.model_plan.plan import plan_rows, shipped_candidates
    from commands.doctor.training.memory_prediction import DEFAULT_TOKENS

    candidates = [_candidate(list(settings))] if settings else shipped_candidates()
    with Console(stderr=True).status("predicting memory") if sys.stderr.isatty() else nullcontext():  # a minute
        plans = {candidate.name: plan_rows(candidate, cluster) for candidate in candidates}
    tokens = candidates[0].tokens if settings else DEFAULT_TOKENS
    if as_json:
        print(plan_output.plan_as_json(cluster, tokens, plans))
    else:
        plan_output.print_plan(cluster, tokens, plans)


def _candidate(arguments: list[str]) -> Any:
    """Return the model of a config."""
    from commands.doctor.model_plan.plan import Candidate
    from commands.doctor.training.load_config import instantiate_part, parse_fit
    from commands.doctor.training.memory_prediction import tokens_of
    from lightning_modules.vision_language.pretrained.module import PretrainedVisionLanguageModel

    try:
        config = parse_fit(arguments)
        model = instantiate_part(config, "model")
    except (ArgumentError, KeyError, TypeError) as error:
        raise ValueError(f"{' '.join(arguments)}: {error}") from error
    settings = getattr(model, "language_model_settings", None)
    if settings is None or settings.path is None:
        raise ValueError(
            f"{' '.join(arguments)}: its model has no pretrained language model (model.init_args.language_model.path), "
            "which --plan is for. Without --config it plans for the sizes of Qwen2.5"
        )
    if isinstance(model, PretrainedVisionLanguageModel):
        raise ValueError(
            f"{' '.join(arguments)}: its model is an image-text model, and --plan is for language models. "
            f"Its memory is predicted without --plan: {PROGRAM} doctor --config FILE"
        )
    return Candidate(settings.path, settings, 1, tokens_of(config.data.init_args), settings.trainable)
