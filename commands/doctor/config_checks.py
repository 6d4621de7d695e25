"""Checks a config: it parses, its batch divides, its files exist, a step of it runs, its checkpoints fit.

Each check depends on those before it: if a config does not parse, the checks after it find nothing.
"""

import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commands.doctor.check import Check, Finding
from commands.doctor.launch_plan import LaunchPlan
from commands.launch.launcher_variables import LauncherVariables
from engine.system.extras import MissingPackagesError, require_extras
from engine.system.installation import PROGRAM

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from commands.doctor.training.probe_step import ProbeResult
    from engine.data.batch_plan import BatchPlan

_PROBE_SECONDS = 600
"""Time limit for the first steps of a training."""
_LATE = Finding(
    "micro batch", "warn", f"the first steps were not done within {_PROBE_SECONDS} s",
    "data, model or steps are slow, or hang; whether the micro-batch fits is not known",
    f"--data.init_args.micro_batch_size 1 computes less; LOCKSTEP_DEBUG=1 {PROGRAM} fit shows what takes the time",
)  # fmt: skip
_PREDICTION_SECONDS = 300
"""Time limit for the prediction of memory: a model of 7 B with images takes two minutes on a CPU."""
_NOT_PREDICTED = Finding(
    "model memory", "warn", f"not predicted within {_PREDICTION_SECONDS} s",
    "large images in long rows take long to trace; whether a step fits into the memory is not known before it runs",
    "a smaller data.init_args.packed_length shows what shorter rows take",
)  # fmt: skip
_WEIGHTS, _DATA = "the weights are to be downloaded first", "data are to be prepared first"


def config_checks(arguments: Sequence[str], plan: LaunchPlan, environ: Mapping[str, str], runs: Path) -> list[Check]:
    """Return the checks of a config: its settings, batch, weights, data, first step and checkpoints.

    Args:
        arguments: as `--config FILE --config OVERLAY --trainer.devices 4`; without `--config` there are no checks.
        plan: ranks to be started, if no launcher has started them.
        environ: environment variables, of which a launcher sets some.
        runs: the directory of all runs.
    """
    if "--config" not in arguments:
        return []
    training = _Training(list(arguments), plan, environ, runs)
    return [
        Check("config", training.parse, 180),
        Check("batch", training.divide_batch, 60),
        Check("weights", training.find_weights, 120),
        Check("model memory", training.predict_memory, _PREDICTION_SECONDS, _NOT_PREDICTED),
        Check("data", training.find_data, 120),
        Check("micro batch", training.compute, _PROBE_SECONDS, _LATE, training.give_up),
        Check("checkpoint folder", training.save, 120),
    ]


@dataclass
class _Training:
    """Checks of a training. Each public method is a check; they run in this order."""

    arguments: list[str]
    plan: LaunchPlan
    environ: Mapping[str, str]
    runs: Path
    config: "Namespace | None" = None
    batch: "BatchPlan | None" = None
    per_node: int = 1
    blocked: dict[str, str] = field(default_factory=lambda: {_WEIGHTS: "", _DATA: ""})
    """{reason why no step can be computed: remedy}"""
    probe: "ProbeResult | None" = None
    _named: str = field(default="", init=False)
    _directory: Path | None = field(default=None, init=False)

    def parse(self) -> Iterator[Finding]:
        from commands.doctor.training.config_errors import config_errors
        from commands.doctor.training.load_config import parse_files, parse_fit, split_config_files

        files, with_texts = split_config_files(self.arguments)
        self._named = " ".join(f"--config {file}" for file in files)
        wrong = list(config_errors(files, lambda texts: parse_fit(with_texts(texts)), parse_files))
        if not wrong:
            config = parse_fit(self.arguments)
            wrong = list(_find_missing_extras(config))
        if not wrong:
            wrong = [*self._check_instantiation(config, "data"), *self._check_instantiation(config, "model")]
            if not wrong:
                self.config = config
                wrong = [*self._build_trainer(config)]
            if not wrong:
                yield Finding("config", "ok", f"{', '.join(map(str, files))}: all settings are known and fit together")
        yield from wrong

    def _build_trainer(self, config: "Namespace") -> Iterator[Finding]:
        """Report that Lightning refuses the trainer; checks that need none still run."""
        from commands.doctor.training.probe_step import build_trainer, quiet

        try:
            with quiet():
                build_trainer(config.trainer)
        except Exception as error:
            remedy = f"correct it in the config ({self._named}) or over it: --trainer.KEY VALUE"
            self.blocked["Lightning refuses the settings of the trainer"] = remedy
            yield Finding("config", "fail", f"trainer: {error}", "training will fail at startup", remedy)

    def _check_instantiation(self, config: "Namespace", part: str) -> Iterator[Finding]:
        """Report the error of a class about the combination of its settings."""
        from commands.cli.configs.parser_message import raised_by_class
        from commands.doctor.training.load_config import instantiate_part

        try:
            instantiate_part(config, part)
        except MissingPackagesError as error:
            yield _missing_packages(error)
        except Exception as error:
            cause = raised_by_class(error)
            yield Finding(
                "config", "fail", f"{part}: {cause}", "training will fail at startup",
                f"correct it in the config ({self._named}) or over it: --KEY VALUE",
            )  # fmt: skip

    def divide_batch(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.training.batch_division import divide_batch

        division = divide_batch(self.config, self.plan, self.environ)
        if division.batch is not None:
            self.batch, self.per_node = division.batch, division.per_node
        yield division.finding

    def find_weights(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.training.load_config import to_dict
        from commands.doctor.training.pretrained_weights import pretrained_findings

        model, data = self.config.model.get("init_args") or {}, self.config.data.get("init_args") or {}
        findings = list(pretrained_findings(to_dict(model), to_dict(data)))
        remedies = [finding.remedy for finding in findings if finding.status != "ok"]
        if remedies:
            self.blocked[_WEIGHTS] = remedies[0]
        else:
            del self.blocked[_WEIGHTS]
        yield from findings
        if to_dict(model).get("init_from"):
            from commands.runs.checkpoint_selection import earlier_stage

            try:
                stage = earlier_stage(model["init_from"], self.runs)
            except (OSError, ValueError) as error:
                why = "the training starts from the weights of an earlier stage"
                yield Finding("weights", "fail", str(error), why, "train that stage, or name its run or checkpoint")
            else:
                yield Finding("weights", "ok", f"model.init_args.init_from: {stage} is intact")

    def predict_memory(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.training.load_config import instantiate_part
        from commands.doctor.training.memory_prediction import predict_memory

        finding = predict_memory(self.config, instantiate_part(self.config, "model"))
        if finding is not None:
            yield finding

    def find_data(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.training.load_config import instantiate_part

        self.blocked[_DATA] = prepare = f"{PROGRAM} prepare {self._named}"
        try:
            due = instantiate_part(self.config, "data").pending_conversion()
        except (OSError, ValueError) as error:
            if isinstance(error, FileNotFoundError) and f"{PROGRAM} prepare" not in str(error):  # the user's own data
                self.blocked[_DATA] = prepare = "correct the path in the config, or make the file"
            yield Finding("data", "fail", str(error), "there is nothing to train on", prepare)
            return
        if due is None:
            del self.blocked[_DATA]  # a missing file is reported when the data are opened
        else:
            why = "rank 0 prepares them at the start of the training, while the other ranks wait"
            yield Finding("data", "warn", due, why, prepare)

    def compute(self) -> Iterator[Finding]:
        if self.config is None or self.batch is None:
            return
        from commands.doctor.training.load_config import is_sharded_strategy
        from commands.doctor.training.micro_batch_probe import not_probed, probe_micro_batch

        if self.blocked:
            yield not_probed(" and ".join(self.blocked), "; ".join(filter(None, self.blocked.values())))
            return
        if self.batch.world_size > 1 and is_sharded_strategy(self.config.trainer.strategy):
            reason = f"the weights are to be sharded over {self.batch.world_size} ranks, and the doctor runs on one"
            alone = f"doctor {self._named} --trainer.strategy auto --trainer.devices 1 --trainer.num_nodes 1"
            size = f"--data.init_args.micro_batch_size {self.batch.micro_batch_size}"
            yield not_probed(reason, f"{PROGRAM} {alone} {size}  # if the whole model fits one device")
            return
        prepare = f"{PROGRAM} prepare {self._named}"
        with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as directory:
            self._directory = Path(directory)
            outcome = probe_micro_batch(self.config, self.batch, self.per_node, prepare, self._directory)
        self.probe, self.batch = outcome.probe, outcome.batch
        yield from outcome.findings

    def give_up(self) -> None:
        """Remove the temporary directory of a step that exceeded its time limit."""
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def save(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.training.checkpoint_storage import checkpoint_findings

        # A new checkpoint is written before an old one is removed.
        last = self.config.last_checkpoint
        num_checkpoints = last.keep + self.config.best_checkpoint.keep + 1
        if last.keep_every_n_steps is not None:  # without trainer.max_steps their number is not known
            num_checkpoints += max(self.config.trainer.max_steps or 0, 0) // last.keep_every_n_steps
        size, step = (self.probe.checkpoint, self.probe.seconds) if self.probe else (None, None)
        if step is not None and self.batch is not None:
            step *= self.batch.accumulation
        between = min(last.every_n_steps, last.keep_every_n_steps or last.every_n_steps)
        # Ranks that measure a shared disk at once would slow each other down.
        yield from checkpoint_findings(
            self.runs, size, num_checkpoints, step, between, measure=LauncherVariables.read(self.environ).is_rank_zero()
        )


def _find_missing_extras(config: "Namespace") -> Iterator[Finding]:
    """Report packages that the config needs and that are not installed."""
    from commands.cli.required_extras import required_extras

    try:
        require_extras(required_extras(config, "fit"))
    except MissingPackagesError as error:
        yield _missing_packages(error)


def _missing_packages(error: MissingPackagesError) -> Finding:
    return Finding("packages", "fail", error.lacking, "training will fail at startup", error.command)
