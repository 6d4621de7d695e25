"""Gives public names to private hooks of LightningCLI and to the options of an argparse parser."""

import argparse
from typing import Any

from lightning.pytorch.cli import LightningArgumentParser, LightningCLI


class OpenCLI(LightningCLI):
    """LightningCLI with public names for the hooks that build the parsers of subcommands and run one of them.

    LightningCLI documents subclassing, but has public hooks only for its own subcommands: fit, validate, test, predict.
    """

    def subcommand_parser(self, subcommand: str | None) -> LightningArgumentParser:
        """Return the parser of a subcommand."""
        return self._parser(subcommand)

    def instantiated(self, group: str) -> Any:
        """Return the object or settings of an option group of the subcommand, after `instantiate_classes` has begun."""
        return self._get(self.config_init, group)

    def add_subcommands(self, parser: LightningArgumentParser, **kwargs: Any) -> None:
        """Add the parsers of all `subcommands()` to the main parser."""
        super()._add_subcommands(parser, **kwargs)

    def build_subcommand_parser(self, trainer_class: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        """Return a new parser with the options of a subcommand."""
        return super()._prepare_subcommand_parser(trainer_class, subcommand, **kwargs)

    def run_subcommand(self, subcommand: str) -> None:
        """Run a subcommand, once model, data and trainer are created."""
        super()._run_subcommand(subcommand)

    def _setup_parser_kwargs(self, parser_kwargs: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
        # LightningCLI gives them to the main parser alone, unless they are listed by subcommand.
        return parser_kwargs, {name: dict(parser_kwargs) for name in self.subcommands()}

    def _add_subcommands(self, parser: LightningArgumentParser, **kwargs: Any) -> None:
        # LightningCLI calls the private names; each forwards to the public name, which a subclass overrides.
        self.add_subcommands(parser, **kwargs)

    def _prepare_subcommand_parser(self, klass: type, subcommand: str, **kwargs: Any) -> LightningArgumentParser:
        return self.build_subcommand_parser(klass, subcommand, **kwargs)

    def _parse_ckpt_path(self) -> None:
        """Do nothing: a checkpoint never changes the config. Lightning would override it by the hyper-parameters."""

    def _run_subcommand(self, subcommand: str) -> None:
        self.run_subcommand(subcommand)


def option_names(parser: argparse.ArgumentParser) -> list[str]:
    """Return all options of a parser, for spelling suggestions; argparse only prints them."""
    return list(parser._option_string_actions)
