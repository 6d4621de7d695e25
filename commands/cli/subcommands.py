"""Builds the parsers of the subcommands: LightningCLI's own, and prepare, export, demo and chat."""

from pathlib import Path
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser
from typing_extensions import override

from commands.cli.arguments import add_command_options, add_own_options, refuse_lone_values
from commands.cli.console_logging import LogSettings, log_to_console
from commands.cli.help import usage
from commands.cli.required_extras import required_extras
from engine.lightning_internals.cli import OpenCLI
from engine.number_check import check_number
from engine.system.extras import require_extras
from engine.system.installation import PROGRAM
from engine.system.runs_directory import runs_directory


class SubcommandCLI(OpenCLI):
    """LightningCLI with more subcommands. It builds only the parser of the subcommand that is given."""

    _command: str | None
    """Subcommand of the command line; None if it asks for the help of all subcommands."""

    @staticmethod
    @override
    def subcommands() -> dict[str, set[str]]:
        model_and_data = {"model", "datamodule"}
        own_arguments = {
            "prepare": set(),
            "export": {*model_and_data, "merge"},
            "demo": {*model_and_data, "load_compared"},
            "chat": model_and_data,
        }
        return {**OpenCLI.subcommands(), **own_arguments}

    @override
    def add_subcommands(self, parser: LightningArgumentParser, **kwargs: object) -> None:
        command, every = self._command, self.subcommands()
        if command is None or command not in every:
            super().add_subcommands(parser, **kwargs)
            parser.usage = usage("COMMAND")
            return
        # Building the parsers of the other commands would take longer than all parsing.
        vars(self)["subcommands"] = lambda: {command: every[command]}
        super().add_subcommands(parser, **kwargs)
        parser.prog = f"{PROGRAM} {command}"  # errors refer to its --help
        parser.usage = usage(command)

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        add_own_options(parser)

    @override
    def build_subcommand_parser(self, trainer_class: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        parser = super().build_subcommand_parser(trainer_class, subcommand, **kwargs)
        parser.usage = usage(subcommand)
        add_command_options(parser, subcommand)
        return parser

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # LightningCLI would warn about sys.argv, which Lightning's launcher needs unchanged to start the other ranks.
        self.config = parser.parse_args(args)
        config = self.config[self.config.subcommand]
        refuse_lone_values(self.subcommand_parser(self.config.subcommand), config)
        check_number("seed_everything", config.seed_everything, at_least=0, at_most=2**32 - 1)  # numpy's range
        log_to_console(LogSettings(**config.log))
        if config.runs is not None and Path(config.runs) != runs_directory():
            raise ValueError(f"runs: {config.runs} is in a config; give it as --runs DIR or LOCKSTEP_RUNS=DIR")
        require_extras(required_extras(config, self.config.subcommand))
