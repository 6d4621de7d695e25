"""Parsers of the subcommands: LightningCLI's and those of prepare, export, demo and chat."""

from pathlib import Path
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser, LightningCLI
from typing_extensions import override

from commands.cli.arguments import add_command_options, add_own_options, refuse_lone_values
from commands.cli.console_logging import LogSettings, log_to_console
from commands.cli.help import usage
from commands.cli.needed_extras import needed_extras
from engine.number_check import check_number
from engine.system.extras import require_extras
from engine.system.installation import PROGRAM
from engine.system.runs_folder import runs_folder


class SubcommandCLI(LightningCLI):
    """LightningCLI with more subcommands, which builds the parser of one alone."""

    _command: str | None
    """Subcommand of the command line; None: the help of all is asked for."""

    @staticmethod
    @override
    def subcommands() -> dict[str, set[str]]:
        given = {"model", "datamodule"}
        own = {"prepare": set(), "export": {*given, "merge"}, "demo": {*given, "load_compared"}, "chat": given}
        return {**LightningCLI.subcommands(), **own}

    def _setup_parser_kwargs(self, parser_kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        return parser_kwargs, {name: dict(parser_kwargs) for name in self.subcommands()}

    def _add_subcommands(self, parser: LightningArgumentParser, **kwargs: object) -> None:
        command, every = self._command, self.subcommands()
        if command is None or command not in every:
            super()._add_subcommands(parser, **kwargs)
            parser.usage = usage("COMMAND")
            return
        # Building the parsers of the other commands would take longer than all parsing.
        vars(self)["subcommands"] = lambda: {command: every[command]}
        super()._add_subcommands(parser, **kwargs)
        parser.prog = f"{PROGRAM} {command}"  # errors refer to its --help
        parser.usage = usage(command)

    @override
    def add_arguments_to_parser(self, parser: LightningArgumentParser) -> None:
        add_own_options(parser)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: object) -> LightningArgumentParser:
        parser = super()._prepare_subcommand_parser(klass, subcommand, **kwargs)
        parser.usage = usage(subcommand)
        add_command_options(parser, subcommand)
        return parser

    @override
    def parse_arguments(self, parser: LightningArgumentParser, args: Any) -> None:
        # LightningCLI would warn about sys.argv, which Lightning's launcher needs unchanged to start the other ranks.
        self.config = parser.parse_args(args)
        config = self.config[self.config.subcommand]
        refuse_lone_values(self._parser(self.config.subcommand), config)
        check_number("seed_everything", config.seed_everything, at_least=0, at_most=2**32 - 1)  # numpy's range
        log_to_console(LogSettings(**config.log))
        if config.runs is not None and Path(config.runs) != runs_folder():
            raise ValueError(f"runs: {config.runs} is in a config; give it as --runs DIR or LOCKSTEP_RUNS=DIR")
        require_extras(needed_extras(config, self.config.subcommand))

    def _parse_ckpt_path(self) -> None:
        """Do nothing: a checkpoint never changes the config."""
