"""fit, validate, test, predict, prepare and export: LightningCLI with its traps closed and a folder for every run.

What differs from plain LightningCLI, and why:

- A checkpoint never changes the config: LightningCLI lays the hyper-parameters of a `--ckpt_path` file over the
  command line without a word.
- Options are written in full: argparse takes `--trainer.max_epoch` for `--trainer.max_epochs`, and a typo with it.
- `config.yaml` of a resumed run is kept, not an error.
- `test`, `validate` and `predict` use the best checkpoint of the run unless told otherwise.
"""

import logging
import os
import sys
import time
from pathlib import Path
from typing import Any

import commands.lean_imports  # noqa: F401  (before lightning)
import torch
import yaml
from filelock import BaseFileLock
from jsonargparse import Namespace
from lightning.pytorch import Trainer
from lightning.pytorch.cli import LightningArgumentParser, LightningCLI

from commands import families  # noqa: F401  (short class names resolve to classes that are imported)
from commands.accelerate_launch import unheeded
from commands.agreement import agreed, begun_before, part_from_earlier_lives
from commands.altered_settings import altered_settings
from commands.console import LogSettings, log_to_console, quiet_lightning
from commands.distributed_debug import set_level
from commands.ending import end_with
from commands.environment import VariablesEnvironment
from commands.listening import listening
from commands.loggers import TRACKERS, loggers_of
from commands.overview import usage_of
from commands.parser import EVALUATIONS, LockstepParser, add_own_options, refuse_lone_values, with_config_of_run
from commands.prepared import note
from commands.processes import agreed_exit, launched_team, match_team, sign
from commands.profiling import profiler_in
from commands.run_folder import (
    RUNS,
    claim_run_name,
    experiment_stem,
    earlier_stage,
    in_slurm_job,
    is_of_a_run,
    newest_run,
    newest_since_begun,
    note_beginning,
    refuse_occupied,
    remove_refused,
    resolve_checkpoint,
    write_config,
)
from commands.run_lock import lock_run
from commands.trainer import LockstepTrainer, add_own_callbacks, refuse_no_batches
from commands.unended import note_end, note_start
from engine.datamodule import LockstepDataModule
from engine.events import event
from engine.faults import AgreedFailure, is_wrong_input
from engine.module import LockstepModule
from engine.stop_signals import Stopped

log = logging.getLogger("lockstep")


class LockstepCLI(LightningCLI):
    """See the module's docstring."""

    _lock: BaseFileLock | None = None
    _new_folder: Path | None = None
    """The run's, when it is this process that has made it."""
    _noted: Path | None = None
    """The run's, when it is this process that notes in it that a training is under way."""

    def __init__(self, args: list[str] | None = None) -> None:
        self._asked = next(iter(sys.argv[1:] if args is None else args), None)
        try:
            super().__init__(
                model_class=LockstepModule,
                datamodule_class=LockstepDataModule,
                subclass_mode_model=True,
                subclass_mode_data=True,
                trainer_class=LockstepTrainer,
                # The batches are dealt out by engine.sampling; Lightning's own sampler would deal them out again.
                trainer_defaults={"use_distributed_sampler": False, "enable_model_summary": False},
                seed_everything_default=1,
                save_config_callback=None,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                parser_kwargs={"allow_abbrev": False},
                parser_class=LockstepParser,
                args=args,
            )
        except Exception as error:
            if self._new_folder is not None and is_wrong_input(error):
                remove_refused(self._new_folder)
            raise
        finally:  # by now the command has run
            if self._noted is not None:
                note_end(self._noted)
            if self._lock is not None:
                self._lock.release()

    @staticmethod
    def subcommands() -> dict[str, set[str]]:
        return {**LightningCLI.subcommands(), "prepare": set(), "export": {"model", "datamodule", "merge"}}

    def _setup_parser_kwargs(self, parser_kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return parser_kwargs, {name: dict(parser_kwargs) for name in self.subcommands()}

    def _add_subcommands(self, parser: LightningArgumentParser, **kwargs: Any) -> None:
        every = self.subcommands()
        if self._asked in every:  # the parsers of the other five would take longer than this one's and all it parses
            self.subcommands = lambda: {self._asked: every[self._asked]}
        super()._add_subcommands(parser, **kwargs)
        if self._asked in every:
            parser.prog = f"train.py {self._asked}"  # whose --help a refusal sends to
        parser.usage = usage_of(self._asked if self._asked in every else "COMMAND")

    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        add_own_options(parser)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        parser.usage = usage_of(subcommand)
        if subcommand == "export":
            whole = "write a language model whole, its adapters merged into its weights"
            parser.add_argument("--merge", action="store_true", help=whole)
        if subcommand in (*EVALUATIONS, "export"):
            parser.set_defaults(ckpt_path="best")
        if subcommand in ("validate", "test"):
            parser.set_defaults(verbose=False)  # ResultsTable shows the figures
        if subcommand == "predict":
            parser.set_defaults(return_predictions=False)  # PredictionFile writes them; nobody reads them from memory
        return parser

    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # Without LightningCLI's warning about sys.argv, which Lightning's launcher needs as it is to start processes.
        self.config = parser.parse_args(args)
        config = self.config[self.config.subcommand]
        refuse_lone_values(self._parser(self.config.subcommand), config)
        log_to_console(LogSettings(**config.log))

    def _parse_ckpt_path(self) -> None:
        """A checkpoint holds weights and progress; the config is what the user gave."""

    # -- the run's folder --------------------------------------------------------------------------------------------

    def before_instantiate_classes(self) -> None:
        if self.subcommand == "prepare":
            return
        config = self.config[self.subcommand]
        self._config_text = self._dump(config)
        team = launched_team(os.environ)
        if not config.run_name and config.trainer.num_nodes > 1 and team is None:
            raise ValueError("several nodes without torchrun or srun: give the processes of all nodes one --run_name")
        folder = RUNS / self._run_name(config)
        log_to_console(LogSettings(**config.log), folder.name)
        checkpoint = agreed("checkpoint", lambda: self._checkpoint(config.ckpt_path, folder))
        model = config.model.get("init_args") or Namespace()
        if model.get("init_from"):
            begins = self.subcommand == "fit" and not checkpoint
            model.init_from = agreed("init_from", lambda: str(earlier_stage(model.init_from))) if begins else None
        part_from_earlier_lives(os.environ)
        config.run_name, config.ckpt_path = folder.name, checkpoint or None
        config.trainer.default_root_dir = str(folder)
        on_accelerator = config.trainer.accelerator != "cpu" and torch.accelerator.is_available()
        for warning in unheeded(os.environ, config.trainer.precision, on_accelerator):
            log.warning("WARNING: %s", warning)
        config.trainer.devices, config.trainer.num_nodes = match_team(
            config.trainer.devices, config.trainer.num_nodes, team
        )
        several = team is not None or config.trainer.devices not in (1, "1", "auto")
        set_level(config.distributed_debug, over_gloo=several and not on_accelerator)
        if self.subcommand == "export":  # files become files: one process does it, without an accelerator
            one = {"accelerator": "cpu", "devices": 1, "num_nodes": 1, "strategy": "auto"}
            config.trainer.update(Namespace(one))

    def _checkpoint(self, ckpt_path: str | None, folder: Path) -> str:
        if self.subcommand != "fit":
            return str(resolve_checkpoint(ckpt_path, folder) or "")
        again = begun_before(os.environ)
        # The launcher gives the same command again; the run goes on with what it has saved, else as it began.
        own = newest_since_begun(folder) if again else None
        if again:
            said = f"going on with {own}" if own else "nothing has been saved, so the run begins as before"
            log.info("started again by the launcher: %s", said, extra=event("run_restarted", path=own and str(own)))
        checkpoint = own or resolve_checkpoint(ckpt_path, folder)
        if not checkpoint:
            refuse_occupied(folder)
        new = folder == self._new_folder or not folder.exists()
        self._lock = lock_run(folder)  # while the others still listen, so that they hear of a refusal
        self._new_folder = folder if new and self._lock is not None else None
        if not again:
            note_beginning(folder)
        note_start(folder)
        self._noted = folder
        return str(checkpoint or "")

    def _run_name(self, config: Namespace) -> str:
        if config.run_name:
            if Path(config.run_name).name != config.run_name:
                raise ValueError(f"--run_name is a name, not a path; got {config.run_name!r}")
            return config.run_name
        paths = [Path(str(path)) for path in config.config or []]
        begins = self.subcommand == "fit" and config.ckpt_path != "last"
        for path in paths:
            if is_of_a_run(path) and not begins:
                return path.resolve().parent.name
        stem = experiment_stem(paths) if paths else "run"
        if self.subcommand != "fit" and config.ckpt_path in ("best", "last"):
            return agreed("run_name", lambda: newest_run(stem))
        launched_again = in_slurm_job(os.environ) or "TORCHELASTIC_RUN_ID" in os.environ
        if config.ckpt_path == "last" and not launched_again:
            raise ValueError(
                "--ckpt_path last: of which run? Add --run_name NAME (the folders in runs/), the same each time"
            )
        return agreed("run_name", lambda: self._claim(stem))

    def _claim(self, stem: str) -> str:
        name = claim_run_name(stem)
        if not in_slurm_job(os.environ):  # a job's folder may be there since before a requeue
            self._new_folder = RUNS / name
        return name

    def _dump(self, config: Namespace) -> str:
        """The config as it can be run again: without the name and the checkpoint of this very run."""
        again = config.clone()
        again.run_name = again.ckpt_path = None
        again.pop("config", None)
        return self._parser(self.subcommand).dump(again, skip_validation=True)

    # -- running -----------------------------------------------------------------------------------------------------

    def instantiate_classes(self) -> None:
        if self.subcommand != "prepare":
            super().instantiate_classes()
            return
        # Data are prepared where there may be no accelerator: neither trainer nor model is made.
        config = self.config.prepare.clone()
        config.model = None
        self.datamodule = self._parser("prepare").instantiate(config).data

    def _run_subcommand(self, subcommand: str) -> None:
        if subcommand == "prepare":
            self.datamodule.prepare()
        elif subcommand == "export":
            config = self.config.export
            self.trainer.export(self.model, self.datamodule, config.output, config.ckpt_path, config.merge)
        else:
            super()._run_subcommand(subcommand)

    def instantiate_trainer(self, **kwargs: Any) -> Trainer:
        config = self._get(self.config_init, "trainer")
        folder = Path(config["default_root_dir"])
        trackers = {kind.KEY: self._get(self.config_init, kind.KEY) for kind in TRACKERS}
        kwargs["logger"] = loggers_of(config.get("logger"), trackers, folder, yaml.safe_load(self._config_text))
        kwargs["profiler"] = profiler_in(folder, config.get("profiler"))
        team = launched_team(os.environ)
        if team is not None and team.launcher == "the launcher":
            plugins = config.get("plugins") or []
            kwargs["plugins"] = [*(plugins if isinstance(plugins, list) else [plugins]), VariablesEnvironment()]
        log_settings = self._get(self.config_init, "log")
        if log_settings.console == "json":
            kwargs["enable_progress_bar"] = False  # it draws on the console
        trainer = super().instantiate_trainer(**kwargs)
        trainer.checkpoint_to_load = self.config[self.subcommand].get("ckpt_path")
        refuse_no_batches(trainer, self.subcommand)
        trainer.strategy.checkpoint_io = self._get(self.config_init, "checkpoints")
        altered = altered_settings(self.subcommand, self._config_text, folder, trainer.checkpoint_to_load)
        add_own_callbacks(trainer, lambda: write_config(self._config_text, folder), log_settings, altered)
        return trainer


def main(args: list[str] | None = None) -> LockstepCLI:
    """`python train.py ...`"""
    arguments, begun = list(sys.argv[1:] if args is None else args), time.time()
    quiet_lightning()
    log_to_console()
    sign(os.environ)
    try:
        with listening(arguments):
            cli = LockstepCLI(with_config_of_run(arguments))
            if cli.subcommand == "prepare" and (files := cli.datamodule.prepared_files()):
                note(arguments, files, begun)
            return cli
    except Stopped as stop:
        raise SystemExit(agreed_exit(stop.code, os.environ)) from None
    except Exception as error:
        if os.environ.get("LOCKSTEP_DEBUG") and not isinstance(error, AgreedFailure):
            raise
        raise SystemExit(end_with(error)) from error
