"""The checks of a config: it parses, its batch splits, its files are here, a step of it runs, its checkpoints fit.

Each rests on those before it: where a config does not parse, what follows from it is not looked at.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from commands.doctor.finding import Check, Finding
from commands.doctor.plan import Plan

if TYPE_CHECKING:
    from jsonargparse import Namespace

    from commands.doctor.trial import Tried
    from engine.batch_plan import BatchPlan

_TIGHT = 0.9
"""Of a device's memory."""


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
        from commands.doctor.settings import parse_fit

        files, with_texts = _files(self.arguments)
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
        try:
            _made(config, part)
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
            yield Finding("batch", "fail", str(error), why, "--trainer.devices auto, and --trainer.num_nodes as started")
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

        model, data = self.config.model.get("init_args") or {}, self.config.data.get("init_args") or {}
        findings = list(pretrained_findings(_plain(model), _plain(data)))
        self.weights_are_here = all(finding.status == "ok" for finding in findings)
        yield from findings
        if _plain(model).get("init_from"):
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
        prepare = f"python train.py prepare {self._named}"
        try:
            due = _made(self.config, "data").unprepared()
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
        if self.batch.processes > 1 and _shards(self.config.trainer.strategy):
            words = f"not tried: the weights are to be sharded over {self.batch.processes} processes, and this is one"
            yield Finding("micro batch", "ok", words)
            return
        from commands.doctor.trial import BeforeTraining, tried

        alone = _of_one_micro_batch(self.config, self.batch.micro_batch_size)
        try:
            model, data = _made(alone, "model"), _made(alone, "data")
            self.tried = tried(
                model, data, alone.trainer, int(self.config.seed_everything), self.config.checkpoints.trainable_only
            )
        except BeforeTraining as error:
            prepare = f"python train.py prepare {self._named}"
            why = "a training ends where it opens its data or makes its model"
            yield Finding("data", "fail", str(error), why, prepare)
            return
        except Exception as error:
            yield _broken(error, self.batch.micro_batch_size)
            return
        if self.tried.samples is not None:
            yield Finding("data", "ok", f"{self.tried.samples:,} samples to train on")
        for words in self.tried.warnings:
            yield Finding("micro batch", "warn", words, "the program warned of it in its first steps", "see docs/")
        yield _computed(self.tried, self.batch, self.per_node)

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


def _computed(tried: "Tried", batch: "BatchPlan", beside: int) -> Finding:
    import psutil
    import torch

    on_gpu = tried.device.type == "cuda"
    there = torch.cuda.get_device_properties(tried.device).total_memory if on_gpu else psutil.virtual_memory().total
    peak = tried.peak if on_gpu else tried.peak * beside
    each = f" for each of {beside} processes" * (beside > 1 and not on_gpu)
    words = (
        f"{batch.micro_batch_size} samples on {tried.device}: loss {tried.loss:.4g}, {tried.seconds * 1e3:.0f} ms, "
        f"peak {tried.peak / 2**30:.2f} GiB{each} of {there / 2**30:.1f} GiB; {tried.gradients / 2**20:.1f} MiB of "
        "gradients"
    )
    if tried.loss != tried.loss or abs(tried.loss) == float("inf"):
        why = "the first step would be left out, and the training would stop soon"
        return Finding("micro batch", "fail", words, why, "--config configs/overlays/debug.yaml finds where it begins")
    if peak > _TIGHT * there:
        why = "a longer batch, or memory in pieces, and it no longer fits"
        return Finding("micro batch", "warn", words, why, _smaller(batch.micro_batch_size))
    return Finding("micro batch", "ok", words)


def _broken(error: Exception, size: int) -> Finding:
    import torch

    words = f"{size} samples: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)) or "can't allocate memory" in str(error):
        return Finding("micro batch", "fail", words, "a training ends in its first step", _smaller(size))
    remedy = "LOCKSTEP_DEBUG=1 python train.py fit with the same config shows where"
    return Finding("micro batch", "fail", words, "a training ends in its first step", remedy)


def _smaller(size: int) -> str:
    if size == 1:
        return "--config configs/overlays/low_memory.yaml"
    return f"--data.init_args.micro_batch_size {size // 2}  # the global batch stays as it is"


def _made(config: "Namespace", part: str) -> Any:
    """The model or the data of a config; the rest is not made."""
    from commands.doctor.settings import fit_parser

    alone = config.clone()
    for other in {"model", "data"} - {part}:
        alone[other] = None
    for key in ("logger", "callbacks", "plugins", "profiler"):
        alone.trainer[key] = None
    alone.trainer.strategy = "auto"
    return fit_parser().instantiate(alone)[part]


def _of_one_micro_batch(config: "Namespace", size: int) -> "Namespace":
    """The same training on one process, whose global batch is one micro-batch; nothing it begins with is read."""
    alone = config.clone()
    given = alone.data.init_args
    given.batch_size, given.batch_size_per_device, given.micro_batch_size = size, None, None
    if "num_workers" in given:
        given.num_workers = 0
    model = alone.model.get("init_args")
    if model is not None and model.get("init_from"):
        model.init_from = None
    return alone


def _shards(strategy: Any) -> bool:
    name = strategy if isinstance(strategy, str) else strategy.get("class_path", "")
    return any(word in name.lower() for word in ("fsdp", "shard", "deepspeed", "modelparallel"))


def _files(arguments: Sequence[str]) -> tuple[list[Path], Any]:
    """The config files of a command line, and a function that puts texts in their places."""
    places = [place + 1 for place, word in enumerate(arguments) if word == "--config"]

    def with_texts(texts: Sequence[str]) -> list[str]:
        given = list(arguments)
        for place, text in zip(places, texts, strict=True):
            given[place] = text
        return given

    files = [Path(arguments[place]) for place in places]
    return files, with_texts


def _plain(settings: Any) -> Mapping[str, Any]:
    return settings.as_dict() if hasattr(settings, "as_dict") else dict(settings)
