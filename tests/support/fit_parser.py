"""The parser of `fit`, without a training."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lightning.pytorch.cli import LightningArgumentParser


def fit_parser(*options: str) -> "LightningArgumentParser":
    """Return the parser of `fit`, which has parsed the options once; building it takes seconds."""
    from commands.cli.main import LockstepCLI

    class Parser(LockstepCLI):
        before_instantiate_classes = instantiate_classes = lambda self: None

        def _run_subcommand(self, subcommand: str) -> None:
            pass

    return Parser(["fit", *options])._parser("fit")
