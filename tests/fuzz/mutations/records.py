"""Mutations of JSON values: a node dropped, doubled, swapped, of another type, huge, deep; keys that occur twice."""

import json
from collections.abc import Callable
from random import Random
from typing import Any


class Pairs(list[Any]):
    """An object as its (key, value) pairs, of which two may have the same key."""


class Raw(str):
    """Text that is written as it is."""


_VALUES: tuple[Any, ...] = (
    None,
    True,
    False,
    0,
    -1,
    1,
    1.5,
    -0.0,
    1e308,
    10**30,
    2**63,
    "",
    " ",
    "7",
    "null",
    "x" * 5000,
    "\0",
    "\ud800",
    "../../etc/passwd",
    "/etc/hostname",
    "C:\\a.png",
    "<image>",
    "<image>" * 50,
    "\u2028",
    "é",
    [],
    [None],
    [[]],
    Pairs(),
    Pairs([("a", 1)]),
    Raw("NaN"),
    Raw("Infinity"),
    Raw("1e999"),
    Raw("-"),
    Raw("9" * 5000),
    Raw("'a'"),
    Raw("{} {}"),
    Raw("[" * 100_000 + "]" * 100_000),
    Raw('{"a":' * 3000 + "1" + "}" * 3000),
    Raw("[" * 900 + "]" * 900),
)


def record_mutation(keys: tuple[str, ...]) -> Callable[[Random, bytes], bytes]:
    """Return the mutation of a JSON value.

    Args:
        keys: names that the reader knows, which a key may become.
    """

    def mutate(random: Random, data: bytes) -> bytes:
        try:
            value = json.loads(data, object_pairs_hook=Pairs)
            return dumped(_mutated(random, value, keys)).encode("utf-8", "surrogatepass")
        except (ValueError, RecursionError):
            return data[: random.randrange(len(data) + 1)]

    return mutate


def line_record_mutation(keys: tuple[str, ...]) -> Callable[[Random, bytes], bytes]:
    """Return the mutation of a file with a JSON value on each line: of a value, or of the lines."""
    from tests.fuzz.mutations.tables import mutate_lines

    inner = record_mutation(keys)

    def mutate(random: Random, data: bytes) -> bytes:
        if random.random() < 0.3:
            return mutate_lines(random, data)
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        lines[at] = inner(random, lines[at])
        return b"\n".join(lines)

    return mutate


def dumped(value: Any) -> str:
    """Return the JSON text of a value with `Pairs` and `Raw`."""
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, Pairs):
        return "{" + ", ".join(f"{json.dumps(key)}: {dumped(inner)}" for key, inner in value) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(dumped, value)) + "]"
    return json.dumps(value, ensure_ascii=not isinstance(value, str) or "\ud800" in value)


def _mutated(random: Random, value: Any, keys: tuple[str, ...]) -> Any:
    inner = [index for index, node in enumerate(value) if _node(node)] if isinstance(value, list) else []
    if not isinstance(value, list) or not value or random.random() < 0.15:
        return random.choice(_VALUES)
    if inner and random.random() < 0.6:  # deeper
        index = random.choice(inner)
        node = value[index]
        changed = (
            (node[0], _mutated(random, node[1], keys)) if isinstance(node, tuple) else _mutated(random, node, keys)
        )
        return type(value)([*value[:index], changed, *value[index + 1 :]])
    return type(value)(_changed(random, list(value), keys))


def _node(node: Any) -> bool:
    return isinstance(node[1] if isinstance(node, tuple) else node, list)


def _changed(random: Random, nodes: list[Any], keys: tuple[str, ...]) -> list[Any]:
    index, other, kind = random.randrange(len(nodes)), random.randrange(len(nodes)), random.randrange(7)
    pair = isinstance(nodes[index], tuple)
    if kind == 0:
        del nodes[index]
    elif kind == 1:
        nodes.insert(other, nodes[index])
    elif kind == 2 and pair:  # the same key with another value
        nodes.insert(other, (nodes[index][0], random.choice(_VALUES)))
    elif kind == 3 and pair:
        nodes[index] = (random.choice((*keys, nodes[index][0].upper(), nodes[index][0] + " ", "")), nodes[index][1])
    elif kind == 4 and pair:
        first, second = nodes[index], nodes[other]
        nodes[index], nodes[other] = (first[0], second[1]), (second[0], first[1])
    elif kind == 4:
        nodes[index], nodes[other] = nodes[other], nodes[index]
    else:
        value = random.choice(_VALUES)
        nodes[index] = (nodes[index][0], value) if pair else value
    return nodes
