"""The checks of a config: it parses, its batch splits, its files are here, a step of it runs, its checkpoints fit.

Each rests on those before it: where a config does not parse, what follows from it is not looked at.
"""

import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commands.doctor.finding import Check, Finding
from commands.doctor.plan import Plan, is_first

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from commands.doctor.trial import Tried
    from engine.batch_plan import BatchPlan

_TRIAL = 600
"""Seconds for the first steps of a training."""
_LATE = Finding(
    "micro batch", "warn", f"the first steps were not done within {_TRIAL} s",
    "data, model or steps are slow, or hang; whether the micro-batch fits is not known",
    "--data.init_args.micro_batch_size 1 tries less; LOCKSTEP_DEBUG=1 python train.py fit shows what takes the time",
)  # fmt: skip
_WEIGHTS, _DATA = "the weights are to be here first", "data are to be prepared first"


def config_checks(
    arguments: Sequence[str], plan: Plan, environ: Mapping[str, str] = os.environ, runs: Path = Path("runs")
) -> list[Check]:
    """
    Args:
        arguments: as `--config FILE --config OVERLAY --trainer.devices 4`; without a config there is nothing to check.
        plan: what is to be started, where no launcher has started it.
        environ: what a launcher says.
        runs: where the runs' folders are made.
    """
    if "--config" not in arguments:
        return []
    training = _Training(list(arguments), plan, environ, runs)
    return [
        Check("config", training.parses, 180),
        Check("batch", training.splits, 60),
        Check("weights", training.pretrained, 120),
        Check("data", training.found, 120),
        Check("micro batch", training.computes, _TRIAL, _LATE, training.give_up),
        Check("checkpoint folder", training.saves, 120),
    ]


@dataclass
class _Training:
    """A training that is planned; its checks are made in the order in which they stand."""

    arguments: list[str]
    plan: Plan
    environ: Mapping[str, str]
    runs: Path
    config: "Namespace | None" = None
    batch: "BatchPlan | None" = None
    per_node: int = 1
    blocked: dict[str, str] = field(default_factory=lambda: {_WEIGHTS: "", _DATA: ""})
    """What keeps a step from being tried, each with what mends it."""
    tried: "Tried | None" = None
    _named: str = field(default="", init=False)
    _folder: Path | None = field(default=None, init=False)

    def parses(self) -> Iterator[Finding]:
        from commands.doctor.config_errors import config_errors
        from commands.doctor.settings import config_files, parse_files, parse_fit

        files, with_texts = config_files(self.arguments)
        self._named = " ".join(f"--config {file}" for file in files)
        wrong = list(config_errors(files, lambda texts: parse_fit(with_texts(texts)), parse_files))
        if not wrong:
            config = parse_fit(self.arguments)
            wrong = [*self._instantiated(config, "data"), *self._instantiated(config, "model")]
            if not wrong:
                self.config = config
                wrong = [*self._trainer_made(config)]
            if not wrong:
                yield Finding("config", "ok", f"{', '.join(map(str, files))}: all settings are known and fit together")
        yield from wrong

    def _trainer_made(self, config: "Namespace") -> Iterator[Finding]:
        """What Lightning says of accelerator and precision; the checks that need neither go on."""
        from commands.doctor.trial import quiet, trainer_of

        try:
            with quiet():
                trainer_of(config.trainer)
        except Exception as error:
            mend = f"correct it in the config ({self._named}) or over it: --trainer.KEY VALUE"
            self.blocked["Lightning refuses the settings of the trainer"] = mend
            yield Finding("config", "fail", f"trainer: {error}", "a training with this config ends at once", mend)

    def _instantiated(self, config: "Namespace", part: str) -> Iterator[Finding]:
        """What a class says of its settings together."""
        from commands.doctor.settings import made

        try:
            made(config, part)
        except Exception as error:
            said: BaseException = error
            while said.__cause__ is not None:  # the parser wraps what the class has said
                said = said.__cause__
            yield Finding(
                "config", "fail", f"{part}: {said}", "a training with this config ends before it begins",
                f"correct it in the config ({self._named}) or over it: --KEY VALUE",
            )  # fmt: skip

    def splits(self) -> Iterator[Finding]:
        if self.config is None:
            return
        import torch

        from commands.processes import launched_team, match_team
        from engine.batch_plan import BatchPlan

        trainer = self.config.trainer
        try:
            team = launched_team(self.environ)
            match_team(trainer.devices, trainer.num_nodes, team)
        except ValueError as error:
            why = "the training ends before it begins"
            yield Finding("batch", "fail", str(error), why, "--trainer.devices auto --trainer.num_nodes NODES")
            return
        own = torch.cuda.device_count() if trainer.accelerator != "cpu" else 0
        self.per_node = team.per_node if team else self.plan.processes(own or 1)
        processes = self.per_node * (team.nodes if team else self.plan.nodes or 1)
        given = self.config.data.init_args
        sizes = {key: given.get(key) for key in ("batch_size", "batch_size_per_device", "micro_batch_size")}
        try:
            self.batch = BatchPlan.derive(processes=processes, **sizes)
        except ValueError as error:
            yield Finding(
                "batch", "fail", str(error), "the training ends before it begins on this number of processes",
                "--data.init_args.batch_size N or --data.init_args.micro_batch_size N, as it says",
            )  # fmt: skip
            return
        yield Finding("batch", "ok", str(self.batch))

    def pretrained(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.pretrained import pretrained_findings
        from commands.doctor.settings import plain

        model, data = self.config.model.get("init_args") or {}, self.config.data.get("init_args") or {}
        findings = list(pretrained_findings(plain(model), plain(data)))
        lacking = [finding.remedy for finding in findings if finding.status != "ok"]
        if lacking:
            self.blocked[_WEIGHTS] = lacking[0]
        else:
            del self.blocked[_WEIGHTS]
        yield from findings
        if plain(model).get("init_from"):
            from commands.run_folder import earlier_stage

            try:
                stage = earlier_stage(model["init_from"])
            except (OSError, ValueError) as error:
                why = "a fit begins with the weights of an earlier stage"
                yield Finding("weights", "fail", str(error), why, "train that stage, or name its run or checkpoint")
            else:
                yield Finding("weights", "ok", f"model.init_args.init_from: {stage} is whole")

    def found(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.settings import made

        self.blocked[_DATA] = prepare = f"python train.py prepare {self._named}"
        try:
            due = made(self.config, "data").unprepared()
        except (OSError, ValueError) as error:
            yield Finding("data", "fail", str(error), "there is nothing to train on", prepare)
            return
        if due is None:
            del self.blocked[_DATA]  # which files it lacks, if some, is told when it is opened
        else:
            why = "the first process of a training does it at its start, while the others wait"
            yield Finding("data", "warn", due, why, prepare)

    def computes(self) -> Iterator[Finding]:
        if self.config is None or self.batch is None:
            return
        from commands.doctor.first_step import first_step
        from commands.doctor.micro_batch import not_tried
        from commands.doctor.settings import shards

        if self.blocked:
            yield not_tried(" and ".join(self.blocked), "; ".join(filter(None, self.blocked.values())))
            return
        if self.batch.processes > 1 and shards(self.config.trainer.strategy):
            words = f"the weights are to be sharded over {self.batch.processes} processes, and this is one"
            alone = f"doctor {self._named} --trainer.strategy auto --trainer.devices 1 --trainer.num_nodes 1"
            size = f"--data.init_args.micro_batch_size {self.batch.micro_batch_size}"
            yield not_tried(words, f"python train.py {alone} {size}  # where one device has room for all of it")
            return
        prepare = f"python train.py prepare {self._named}"
        with tempfile.TemporaryDirectory(prefix="doctor-", ignore_cleanup_errors=True) as folder:
            self._folder = Path(folder)
            outcome = first_step(self.config, self.batch, self.per_node, prepare, self._folder)
        self.tried, self.batch = outcome.tried, outcome.batch
        yield from outcome.findings

    def give_up(self) -> None:
        """Nothing is left of a step that is not waited for."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)

    def saves(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.checkpoint_folder import checkpoint_findings

        # The one that is being written stands beside those that are kept.
        kept = self.config.last_checkpoint.keep + self.config.best_checkpoint.keep + 1
        size, step = (self.tried.checkpoint, self.tried.seconds) if self.tried else (None, None)
        if step is not None and self.batch is not None:
            step *= self.batch.accumulation
        between = self.config.last_checkpoint.every_n_steps
        # All processes of all nodes at once would take a shared disk from each other.
        yield from checkpoint_findings(self.runs, size, kept, step, between, measures=is_first(self.environ))
