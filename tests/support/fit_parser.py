"""The parser of `fit`, and the config that it prints, without a training."""

from typing import TYPE_CHECKING, Any

import pytest
import yaml

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


def printed_config(capsys: pytest.CaptureFixture[str], *options: str) -> Any:
    """Return the complete config that the options of a fit mean, as --print_config prints it."""
    from commands.cli.main import main

    with pytest.raises(SystemExit) as end:
        main(["fit", *options, "--print_config"])
    assert end.value.code == 0
    return yaml.safe_load(capsys.readouterr().out)
