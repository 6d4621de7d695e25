"""Dumps the YAML of `config.yaml`, also for values that PyYAML's safe dumper refuses."""

from datetime import timedelta
from enum import Enum

import torch
import yaml
from jsonargparse import ArgumentParser, Namespace, set_dumper

from commands.cli.deprecated_names import PARSER_MODE


class _Dumper(yaml.SafeDumper):
    """Writes devices, enumeration members and durations as the strings from which they are parsed.

    Some classes of Lightning have them as defaults: Timer, StochasticWeightAveraging and DDPStrategy.
    """


_Dumper.add_representer(torch.device, lambda dumper, value: dumper.represent_str(str(value)))
_Dumper.add_representer(timedelta, lambda dumper, value: dumper.represent_str(str(value)))
_Dumper.add_multi_representer(Enum, lambda dumper, value: dumper.represent_data(value.value))


def register_dumper() -> None:
    """Register the dumper of `PARSER_MODE`, which parsers use by default."""
    set_dumper(PARSER_MODE, _dump)


def reusable_text(parser: ArgumentParser, config: Namespace) -> str:
    """Return the text of the config without the name and the checkpoint of this run: it starts a new run."""
    reusable = config.clone()
    for name in ("config", "run_name", "runs", "ckpt_path", "weights_only"):  # of this command alone
        reusable.pop(name, None)
    # Null is kept: where the default is another value, dropping it would change the next run.
    return parser.dump(reusable, skip_none=False, skip_validation=True)


def _dump(data: object) -> str:
    text: str = yaml.dump(data, Dumper=_Dumper, default_flow_style=False, allow_unicode=True, sort_keys=False)
    return text
