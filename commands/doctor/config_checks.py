"""The checks of a config: it parses, its batch splits, its files are here, a step of it runs, its checkpoints fit.

Each rests on those before it: where a config does not parse, what follows from it is not looked at.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from commands.doctor.finding import Check, Finding
from commands.doctor.plan import Plan

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from commands.doctor.trial import Tried
    from engine.batch_plan import BatchPlan


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
        Check("micro batch", training.computes, 600),
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
    weights_are_here: bool = False
    data_is_here: bool = False
    tried: "Tried | None" = None
    _named: str = field(default="", init=False)

    def parses(self) -> Iterator[Finding]:
        from commands.doctor.config_errors import config_errors
        from commands.doctor.settings import config_files, parse_fit

        files, with_texts = config_files(self.arguments)
        self._named = " ".join(f"--config {file}" for file in files)
        wrong = list(config_errors(files, lambda texts: parse_fit(with_texts(texts))))
        if not wrong:
            config = parse_fit(self.arguments)
            wrong = [*self._instantiated(config, "data"), *self._instantiated(config, "model")]
            if not wrong:
                self.config = config
                yield Finding("config", "ok", f"{', '.join(map(str, files))}: all settings are known and fit together")
        yield from wrong

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
        self.weights_are_here = all(finding.status == "ok" for finding in findings)
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

        prepare = f"python train.py prepare {self._named}"
        try:
            due = made(self.config, "data").unprepared()
        except (OSError, ValueError) as error:
            yield Finding("data", "fail", str(error), "there is nothing to train on", prepare)
            return
        if due is None:
            self.data_is_here = True  # which files it lacks, if some, is told when it is opened
        else:
            why = "the first process of a training does it at its start, while the others wait"
            yield Finding("data", "warn", due, why, prepare)

    def computes(self) -> Iterator[Finding]:
        if self.config is None or self.batch is None or not (self.weights_are_here and self.data_is_here):
            return
        from commands.doctor.micro_batch import broken, computed
        from commands.doctor.settings import made, of_one_micro_batch, shards
        from commands.doctor.trial import BeforeTraining, tried

        if self.batch.processes > 1 and shards(self.config.trainer.strategy):
            words = f"not tried: the weights are to be sharded over {self.batch.processes} processes, and this is one"
            yield Finding("micro batch", "ok", words)
            return
        alone = of_one_micro_batch(self.config, self.batch.micro_batch_size)
        try:
            model, data = made(alone, "model"), made(alone, "data")
            self.tried = tried(
                model, data, alone.trainer, int(self.config.seed_everything), self.config.checkpoints.trainable_only
            )
        except BeforeTraining as error:
            prepare = f"python train.py prepare {self._named}"
            why = "a training ends where it opens its data or makes its model"
            yield Finding("data", "fail", str(error), why, prepare)
            return
        except Exception as error:
            yield broken(error, self.batch.micro_batch_size)
            return
        if self.tried.samples is not None:
            yield Finding("data", "ok", f"{self.tried.samples:,} samples to train on")
        for words in self.tried.warnings:
            yield Finding("micro batch", "warn", words, "the program warned of it in its first steps", "see docs/")
        yield computed(self.tried, self.batch, self.per_node)

    def saves(self) -> Iterator[Finding]:
        if self.config is None:
            return
        from commands.doctor.checkpoint_folder import checkpoint_findings

        # The one that is being written stands beside those that are kept.
        kept = self.config.last_checkpoint.keep + self.config.best_checkpoint.keep + 1
        size, step = (self.tried.checkpoint, self.tried.seconds) if self.tried else (None, None)
        if step is not None and self.batch is not None:
            step *= self.batch.accumulation
        yield from checkpoint_findings(self.runs, size, kept, step, self.config.last_checkpoint.every_n_steps)
