"""Runs fit, validate, test, predict, prepare, export, demo and chat: LightningCLI with a directory for every run.

Differences from LightningCLI:

- A checkpoint never changes the config. LightningCLI silently overrides the command line with the hyper-parameters of a
  `--ckpt_path` file.
- Options are written in full. argparse accepts abbreviations, and typos with them.
- A resumed run keeps its `config.yaml`. LightningCLI raises an error.
- Commands on a trained run use its best checkpoint by default.
"""

import logging
import os
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import yaml
from jsonargparse import Namespace
from typing_extensions import override

from callbacks.health.watchdog import report_unhandled_exception
from callbacks.trackers.loggers import create_loggers
from callbacks.trackers.tracker_registry import TRACKERS
from commands.answers.answer_service_loading import load_answer_service
from commands.answers.compared_runs import ComparedRun
from commands.cli import class_registry  # noqa: F401  (a class has a short name once it is imported)
from commands.cli.arguments import LockstepParser, add_run_config
from commands.cli.configs.compare_option import arguments_of_compared
from commands.cli.configs.config_dump import register_dumper, reusable_text
from commands.cli.configs.config_files import check_arguments
from commands.cli.configs.parser_message import raised_by_class
from commands.cli.console_logging import LogSettings, filter_lightning_noise, log_to_console
from commands.cli.ddp_settings import adapt_to_launch
from commands.cli.default_callbacks import add_default_callbacks, with_progress_bar
from commands.cli.deprecated_names import PARSER_MODE, register_aliases, replace_aliases
from commands.cli.error_reporting import exit_code_for_rank, mark_parent, report_error
from commands.cli.profiler import create_profiler
from commands.cli.shipped_configs import resolve_shipped_configs
from commands.cli.subcommands import SubcommandCLI
from commands.cli.threads_option import select_threads, set_threads
from commands.cli.trainer import LockstepTrainer, require_batches
from commands.launch.early_signal_handlers import handling_early_signals
from commands.launch.env_variables_cluster import EnvVariablesEnvironment
from commands.launch.launched_processes import launched_processes
from commands.launch.local_rank import without_local_rank
from commands.launch.restart_detection import connect_with_prefix, restart_prefix
from commands.runs.evaluation_settings import changed_evaluation_keys
from commands.runs.run_directory import write_config
from commands.runs.run_start import RunStart
from commands.runs.runs_option import runs_of
from engine.datamodule import LockstepDataModule
from engine.distributed.errors import CollectiveError, is_user_error
from engine.health.signals import RunStopped
from engine.module import LockstepModule
from engine.system.open_files import raise_open_file_limit
from engine.system.runs_directory import runs_directory

log = logging.getLogger("lockstep")


class LockstepCLI(SubcommandCLI):
    """LightningCLI with a directory for every run; see the docstring of the module.

    As with LightningCLI, the constructor runs the command.

    Args:
        args: the command line; None for that of the process.
        opens_page: whether `demo` opens its page. If not, it loads the run into `loaded`, for another run's page.
    """

    trainer: LockstepTrainer
    model: LockstepModule
    datamodule: LockstepDataModule

    _run: RunStart | None = None
    """Run directory of the command; `prepare` has none."""

    loaded: ComparedRun | None = None
    """The run that `demo` has loaded without a page."""

    def __init__(self, args: list[str] | None = None, opens_page: bool = True) -> None:
        self._arguments, self._opens_page = sys.argv[1:] if args is None else args, opens_page
        self._command = next(iter(self._arguments), None)
        register_aliases()
        register_dumper()
        try:
            super().__init__(
                model_class=LockstepModule,
                datamodule_class=LockstepDataModule,
                subclass_mode_model=True,
                subclass_mode_data=True,
                trainer_class=LockstepTrainer,
                # engine.data.samplers distributes the batches; Lightning's sampler would distribute them again.
                trainer_defaults={"use_distributed_sampler": False, "enable_model_summary": False},
                seed_everything_default=1,
                save_config_callback=None,
                auto_configure_optimizers=False,
                load_from_checkpoint_support=False,
                parser_kwargs={"allow_abbrev": False, "parser_mode": PARSER_MODE},
                parser_class=LockstepParser,
                args=args,
            )
        except Exception as error:
            if self._run is not None and is_user_error(error):
                self._run.remove_if_created()
            raise
        finally:  # by now the command has run
            if self._run is not None:
                self._run.close()

    # -- the run directory -------------------------------------------------------------------------------------------

    @override
    def before_instantiate_classes(self) -> None:
        config = self.config[self.subcommand]
        if config.threads != "auto":
            set_threads(config.threads)
        if self.subcommand == "prepare":
            return
        self._config_text = reusable_text(self.subcommand_parser(self.subcommand), config)
        launched = launched_processes(os.environ)
        if not config.run_name and config.trainer.num_nodes > 1 and launched is None:
            raise ValueError("several nodes without torchrun or srun: give the ranks of all nodes the same --run_name")
        assert self.subcommand is not None, "the parser requires it"
        self._run = RunStart(self.subcommand, runs_directory())
        configs = [Path(str(path)) for path in config.config or []]
        directory = self._run.select_directory(config.run_name, configs, config.ckpt_path)
        log_to_console(LogSettings(**config.log), directory.name)
        checkpoint = self._run.select_checkpoint(config.ckpt_path, directory)
        self._threads = select_threads(config.threads, checkpoint, directory if self._run.resumes else None)
        model = config.model.get("init_args") or Namespace()
        if model.get("init_from"):
            model.init_from = self._run.select_initial_weights(model.init_from, checkpoint)
        self._store_prefix = restart_prefix(os.environ)
        # Later code reads the selected names from the config; _config_text was taken before.
        config.run_name, config.ckpt_path = directory.name, checkpoint
        config.trainer.default_root_dir = str(directory)
        adapt_to_launch(config, self.subcommand, launched)

    # -- running -----------------------------------------------------------------------------------------------------

    @override
    def instantiate_classes(self) -> None:
        try:
            self._instantiate()
        except ValueError as error:
            cause = raised_by_class(error)
            raise cause from cause.__cause__  # not from `error`, whose chain contains `cause`: an endless chain

    def _instantiate(self) -> None:
        if self.subcommand != "prepare":
            super().instantiate_classes()
            return
        # `prepare` may run on a machine without an accelerator, so it creates neither trainer nor model.
        config = self.config.prepare.clone()
        config.model = None
        self.datamodule = self.subcommand_parser("prepare").instantiate(config).data

    @override
    def run_subcommand(self, subcommand: str) -> None:
        if subcommand == "prepare":
            self.datamodule.prepare()
        elif subcommand == "export":
            config = self.config.export
            self.trainer.export(self.model, self.datamodule, config.output, config.ckpt_path, config.merge)
        elif subcommand == "demo":
            (self._open_page if self._opens_page else self._load_for_page)(self.config.demo)
        elif subcommand == "chat":
            self.trainer.chat(self.model, self.datamodule, self.config.chat.ckpt_path)
        else:
            try:
                super().run_subcommand(subcommand)
            except Exception as error:
                report_unhandled_exception(self.trainer, error)
                raise

    def _load_for_page(self, config: Namespace) -> None:
        """Load the run, which answers on the page of another run."""
        service = load_answer_service(self.trainer, self.model, self.datamodule, config.ckpt_path)
        self.loaded = ComparedRun(config.run_name, service, self.trainer.precision_plugin.forward_context)

    def _open_page(self, config: Namespace) -> None:
        """Open the page of the run, on which the run of `--compare` answers as well."""
        options = {name: config[name] for name in ("ckpt_path", "host", "port", "auth", "compare")}
        load: Callable[[], ComparedRun] | None = None
        if config.compare is not None:
            arguments = arguments_of_compared(self._arguments, config.compare, runs_directory())
            load = partial(_load_run, arguments)
        self.trainer.demo(self.model, self.datamodule, **options, load_compared=load)

    @override
    def instantiate_trainer(self, **kwargs: object) -> LockstepTrainer:
        command = self.subcommand
        assert command is not None, "the parser requires it"
        config = self.instantiated("trainer")
        folder = Path(config["default_root_dir"])
        trackers = {tracker: self.instantiated(tracker.KEY) for tracker in TRACKERS}
        kwargs["logger"] = create_loggers(config.get("logger"), trackers, folder, yaml.safe_load(self._config_text))
        kwargs["profiler"] = create_profiler(folder, config.get("profiler"))
        launched = launched_processes(os.environ)
        if launched is not None and launched.kind == "environment":
            plugins = config.get("plugins") or []
            # Lightning detects torchrun and SLURM itself, but no other launcher.
            kwargs["plugins"] = [*(plugins if isinstance(plugins, list) else [plugins]), EnvVariablesEnvironment()]
        log_settings = self.instantiated("log")
        if log_settings.console == "json":
            kwargs["enable_progress_bar"] = False  # it draws on the console
        kwargs["callbacks"] = with_progress_bar({**config, **kwargs})
        trainer = super().instantiate_trainer(**kwargs)
        assert isinstance(trainer, LockstepTrainer), "it is the trainer_class"
        trainer.checkpoint_to_load = self.config[command].get("ckpt_path")
        require_batches(trainer, command)
        trainer.strategy.checkpoint_io = self.instantiated("checkpoints")
        altered = changed_evaluation_keys(command, self._config_text, folder, trainer.checkpoint_to_load)
        keep_config = partial(write_config, self._config_text, folder)
        add_default_callbacks(trainer, keep_config, log_settings, altered, self._threads)
        if self._store_prefix is not None and trainer.world_size > 1:
            # This precedes Lightning's own call, which finds a process group and creates no other.
            connect_with_prefix(trainer.strategy, self._store_prefix, os.environ)
        return trainer


def _load_run(arguments: list[str]) -> ComparedRun:
    loaded = LockstepCLI(arguments, opens_page=False).loaded
    assert loaded is not None, "the command is `demo`"
    return loaded


def main(args: list[str] | None = None) -> LockstepCLI:
    """Run `python train.py ...`.

    Args:
        args: arguments after `train.py`; None: `sys.argv`.

    Raises:
        SystemExit: the command has failed; the error is logged.
    """
    command_line = sys.argv[1:] if args is None else args
    filter_lightning_noise()
    log_to_console()
    arguments = without_local_rank(command_line, os.environ)
    mark_parent(os.environ)
    try:
        raise_open_file_limit()
        with handling_early_signals(arguments):
            arguments = resolve_shipped_configs(replace_aliases(arguments))
            check_arguments(arguments)
            with runs_of(arguments, os.environ) as runs:
                arguments = add_run_config(arguments, runs)
                return LockstepCLI(arguments)
    except RunStopped as stop:
        raise SystemExit(exit_code_for_rank(stop.code, os.environ)) from None
    except Exception as error:
        if os.environ.get("LOCKSTEP_DEBUG") and not isinstance(error, CollectiveError):
            raise
        raise SystemExit(report_error(error, arguments)) from error
