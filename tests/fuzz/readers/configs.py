"""YAML configs and command lines of `fit`. The reference is PyYAML, and the options as pairs.

Each value that is written has to arrive at its key, as itself or as the number or the path that it spells; which values
a key allows is the parser's to decide.
"""

import contextlib
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import yaml

from tests.fuzz.mutations.tables import mutate_lines
from tests.fuzz.reader import Input, InvalidInput, Reader, Unknown
from tests.support.fit_parser import fit_parser

_CONFIG = Path(__file__).parents[3] / "configs" / "recommender" / "quickstart.yaml"
_VALUES = (
    "",
    "null",
    "~",
    "-1",
    "0",
    "1e-3",
    "1e400",
    ".inf",
    ".nan",
    "yes",
    "'",
    '"',
    "[1, 2]",
    "{a: 1}",
    "[",
    "{",
    "&a 1",
    "*a",
    "!!python/object:os.system x",
    "!!binary aGk=",
    "0x10",
    "0o7",
    "1_000",
    "12:30:45",
    "2024-01-01",
    "<<",
    "|",
    ">-",
    "x" * 3000,
    "é",
    "\t1",
    "- 1",
    "@a",
    "%a",
    "`a",
    "1" * 400,
    "class_path: X",
    "[" * 2000,
    "true # b",
    "5 5",
    "None",
)
_LISTED = (
    "--trainer",
    "--model",
    "--data",
    "--config",
    "--trainer.max_epochs",
    "--model.init_args.dropout",
    "--seed",
    "-c",
    "--run_name",
    "--",
    "-",
    "",
    "=",
    "--=",
    "--trainer.max_epochs=",
    "--trainer.callbacks+=X",
    "--print_config",
    "--model.help",
    "--data.init_args.marketplace.num_users",
    "1",
    "null",
    "-5",
    "{",
    "a\nb",
    "--a b",
    "\0",
    "é",
    "--checkpoints.asynchronous",
    "true",
    "--gradients.static_graph",
    "fit",
    "[]",
    "--ckpt_path",
    "--trainer.max_epochs.x",
)

_NULL = ("null", "~")  # a setting that is null counts as not given
_NO_SETTINGS = ("--config", "--print_config", "--gradients.static_graph")  # the last option was removed and is ignored


class Config(Reader):
    """The config of a recommender, read by the parser of `fit`."""

    seconds: ClassVar[float] = 5.0
    slow_tier: ClassVar[int] = 20  # the parser takes tenths of a second

    def seeds(self) -> Sequence[Input]:
        return [Input("mine.yaml", _CONFIG.read_bytes())]

    def restructure(self, random: Random, data: bytes) -> bytes:
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        key, colon, value = lines[at].partition(b": ")
        kind = random.randrange(6)
        if kind == 0 or not colon:
            return mutate_lines(random, data)
        if kind == 1:
            lines[at] = random.choice((b" ", b"  ", b"    ", b"\t")) + lines[at]
        elif kind == 2:
            lines[at] = lines[at].lstrip()
        elif kind == 3:
            lines.insert(at + 1, key + b": " + random.choice(_VALUES).encode())
        elif kind == 4:
            lines[at] = key[: len(key) - 1] + colon + value
        else:
            lines[at] = key + b": " + random.choice(_VALUES).encode()
        return b"\n".join(lines)

    def read(self, path: Path) -> Any:
        return _parsed(["fit", "--config", str(path)])

    def reference(self, path: Path) -> Any:
        try:
            found = yaml.load(path.read_bytes().decode("utf-8-sig"), _Once)
        except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"PyYAML finds {str(error)[:150]}") from error
        if not isinstance(found, dict):
            raise InvalidInput("it is no mapping")
        return dict(_leaves("", found))

    def agrees(self, actual: Any, expected: Any) -> bool:
        return all(key in actual and _same(actual[key], value) for key, value in expected.items())

    def names_file(self, message: str, path: Path) -> bool:
        return path.name in message or " required: " in message  # a key that no config has is of no file

    def names_location(self, message: str, data: bytes) -> bool:
        return True  # jsonargparse names the key; a file that is no YAML has a line


class CommandLine(Config):
    """Arguments of `fit`, in a file as a JSON list."""

    def seeds(self) -> Sequence[Input]:
        listed = [
            "--config",
            str(_CONFIG.relative_to(_CONFIG.parents[2])),
            "--trainer.max_epochs",
            "3",
            "--model.init_args.dropout=0.5",
            "--run_name",
            "mine",
        ]
        return [Input("arguments.json", json.dumps(listed).encode())]

    def mutate(self, random: Random, seed: Input) -> Input:
        listed = json.loads(seed.data)
        for _ in range(random.choice((1, 1, 2, 3))):
            at, other, kind = random.randrange(len(listed)), random.randrange(len(listed)), random.randrange(6)
            cut = random.randrange(len(listed[at]) + 1)
            if kind == 0 and len(listed) > 1:
                del listed[at]
            elif kind == 1:
                listed.insert(other, listed[at])
            elif kind == 2:
                listed[at], listed[other] = listed[other], listed[at]
            elif kind == 3:
                listed[at] = (
                    listed[at][:cut] + random.choice(("", ".", "=", " ", "\n", "x", "é", "-")) + listed[at][cut:]
                )
            else:
                listed[at : at + kind - 4] = [random.choice((*_LISTED, *_VALUES))]
        return seed._replace(data=json.dumps(listed).encode())

    def read(self, path: Path) -> Any:
        return _parsed(["fit", *json.loads(path.read_bytes())])

    def reference(self, path: Path) -> Any:
        listed = json.loads(path.read_bytes())
        if any(not argument.startswith("--") or "=" not in argument for argument in listed[2:]):
            pairs = dict(zip(listed[::2], listed[1::2], strict=False))
        else:
            pairs = dict(argument.split("=", 1) for argument in listed)
        if not all(key.startswith("--") and "=" not in key for key in pairs) or len(pairs) * 2 != len(listed):
            raise Unknown("options of both forms")
        if any(value.startswith("--") for value in pairs.values()):
            raise Unknown("an option without a value")
        return {key[2:]: value for key, value in pairs.items() if key not in _NO_SETTINGS and value not in _NULL}

    def agrees(self, actual: Any, expected: Any) -> bool:
        return actual is None or super().agrees(actual, expected)

    def names_file(self, message: str, path: Path) -> bool:
        return True  # there is no file: the message names the option


READERS = {"config": Config, "command_line": CommandLine}


@cache
def _parser() -> Any:
    """Return the parser of `fit`; building it takes longer than all parsing."""
    return fit_parser("--config", str(_CONFIG))


def _parsed(arguments: list[str]) -> dict[str, Any] | None:
    """Parse as `main` does.

    Returns:
        The config as {key: value}; None where the arguments ask for a text, as --help does.

    Raises:
        ValueError: the parser refuses the arguments; the message is that on the console, without usage and tip.
    """
    from commands.cli.arguments import add_run_config, refuse_lone_values
    from commands.cli.deprecated_names import replace_aliases
    from commands.cli.shipped_configs import resolve_shipped_configs

    parser, console = _parser(), io.StringIO()
    try:
        with contextlib.redirect_stderr(console), contextlib.redirect_stdout(io.StringIO()):
            complete = add_run_config(resolve_shipped_configs(replace_aliases(arguments)), Path("runs"))
            config = parser.parse_args(complete[1:])
            refuse_lone_values(parser, config)
    except SystemExit as end:
        if end.code == 0:
            return None
        if end.code != 2:
            raise
        raise ValueError(console.getvalue().partition("error: ")[2]) from end
    return dict(_leaves("", config.as_dict()))


_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # they differ in what a tab and a byte-order mark are


class _Once(_LOADER):
    """PyYAML's loader, which refuses a key that occurs twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        names = [key.value for key, _ in node.value]
        if len(set(map(str, names))) < len(names):
            raise ValueError("a key occurs twice")
        return super().construct_mapping(node, deep)


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping) and value:
        for name, inner in value.items():
            yield from _leaves(f"{key}.{name}" if key else str(name), inner)
    elif value not in ({}, None):
        yield key, value


def _same(found: Any, written: Any) -> bool:
    if found == written or str(found) == str(written) or str(found).endswith(f".{written}"):
        return True
    with contextlib.suppress(TypeError, ValueError):
        return float(found) == float(written)
    with contextlib.suppress(yaml.YAMLError):
        return bool(yaml.safe_load(str(written)) == found)
    return False
