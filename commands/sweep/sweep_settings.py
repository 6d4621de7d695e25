"""Declares what SWEEP.yaml holds: what is searched, by which metric, with which sampler and pruner."""

from typing import Literal, NamedTuple

from commands.cli.configs.config_files import without_init_args

Value = str | int | float | bool | None


def option_text(value: Value) -> str:
    """Return a value as an option of the command line has it.

    A text is not quoted: the parser of fit would keep the quotes. The type of the option decides what `1` or `null` is.
    """
    return {None: "null", True: "true", False: "false"}[value] if isinstance(value, bool | None) else str(value)


class Parameter(NamedTuple):
    """A setting that is searched, and its values."""

    key: str  # dotted key of the config, as on the command line: `model.init_args.learning_rate`
    kind: Literal["float", "int", "categorical"]
    low: float = 0.0
    high: float = 0.0
    log: bool = False
    step: int = 1
    values: tuple[Value, ...] = ()
    line: int = 0  # in SWEEP.yaml

    def overrides(self, key: str) -> bool:
        """Return whether a value of this parameter, later on a command line, overrides that of a dotted key.

        `model.dropout` overrides `model.init_args.dropout`, and `model` overrides both. An old name of a group is the
        same key as its current name.
        """
        own, other = (without_init_args(name) for name in (self.key, key))
        return f"{other}.".startswith(f"{own}.")


class Sampler(NamedTuple):
    """How the values of a trial are chosen."""

    type: Literal["tpe", "random"] = "tpe"
    startup_trials: int = 10  # random trials before the tree-structured Parzen estimator


class Pruner(NamedTuple):
    """When a trial ends early: if its best value so far is worse than the median of the trials before at that step."""

    type: Literal["median", "none"] = "none"
    startup_trials: int = 5  # trials that end by themselves before any is pruned
    warmup_steps: int = 0  # optimizer steps of a trial before it is pruned


class SweepSettings(NamedTuple):
    """Content of SWEEP.yaml."""

    metric: str
    direction: Literal["maximize", "minimize"]
    trials: int
    seed: int
    sampler: Sampler
    pruner: Pruner
    parameters: tuple[Parameter, ...]

    def best(self, values: list[float]) -> float:
        """Return the best of some values, which are not empty."""
        return max(values) if self.direction == "maximize" else min(values)
