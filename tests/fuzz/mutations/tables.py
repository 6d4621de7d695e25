"""Mutations of text in lines and of tables in text: fields, lines and the header."""

from collections.abc import Callable
from random import Random

VALUES = (
    b"",
    b" ",
    b"nan",
    b"NaN",
    b"inf",
    b"-inf",
    b"-1",
    b"0",
    b"-0",
    b"+5",
    b" 7 ",
    b"1e308",
    b"1e999",
    b"1_000",
    b"0x10",
    b"1,5",
    b"007",
    b"9" * 30,
    b"null",
    b"None",
    b"true",
    b"NA",
    "１２".encode(),
    "é".encode(),
    "\u200b".encode(),
    b"\xff",
    b"x" * 5000,
    b"2024-01-01",
    b"1700000000000",
    b"1e9",
    b"978300760.999",
    b'"',
    b'""',
    b'"a"b',
    b'a"b',
    b'"a\nb"',
    b"'",
    b"\0",
    b"#",
    b"\\",
    b"=1+1",
)


def mutate_lines(random: Random, data: bytes) -> bytes:
    """Return a text with a mutation of one line, or of its quotes."""
    lines = data.split(b"\n")
    at = random.randrange(len(lines))
    cut = random.randrange(len(lines[at]) + 1)
    other = random.randrange(len(lines))
    kind = random.randrange(9)
    if kind == 0:
        del lines[at]
    elif kind == 1:
        lines.insert(other, lines[at])
    elif kind == 2:
        lines[at], lines[other] = lines[other], lines[at]
    elif kind == 3 and at + 1 < len(lines):
        lines[at : at + 2] = [lines[at] + lines[at + 1]]
    elif kind == 4:
        lines[at] = lines[at][:cut]
    elif kind == 5:
        lines[at : at + 1] = [lines[at][:cut], lines[at][cut:]]
    elif kind == 6:
        lines.insert(at, random.choice((b"", b" ", b"\t", b"\r", b"# a comment", b"\0", lines[0])))
    elif kind == 7:
        lines[at] = lines[at][:cut] + random.choice((b'"', b"'", b'"' * 3, b"\\")) + lines[at][cut:]
    else:
        lines[at] = random.choice((b" ", b'"', b"\t", b"\xef\xbb\xbf")) + lines[at] + random.choice((b"", b" ", b'"'))
    return b"\n".join(lines)


def table_mutation(separator: bytes) -> Callable[[Random, bytes], bytes]:
    """Return the mutation of tables with a separator: of a field, a column, a line or a quote."""

    def mutate(random: Random, data: bytes) -> bytes:
        if random.random() < 0.35:
            return mutate_lines(random, data)
        lines = data.split(b"\n")
        at = random.randrange(len(lines))
        fields = lines[at].split(separator)
        index, other = random.randrange(len(fields)), random.randrange(len(fields))
        kind = random.randrange(8)
        if kind == 0:
            del fields[index]
        elif kind == 1:
            fields.insert(index, fields[other])
        elif kind == 2:
            fields[index], fields[other] = fields[other], fields[index]
        elif kind == 3:  # the same column of all lines
            return b"\n".join(_without(line, separator, index) for line in lines)
        elif kind == 4:
            fields[index] = b'"' + fields[index] + random.choice((b'"', b"", separator + b'"', b'""'))
        else:
            fields[index] = random.choice(VALUES)
        lines[at] = separator.join(fields)
        return b"\n".join(lines)

    return mutate


def _without(line: bytes, separator: bytes, index: int) -> bytes:
    fields = line.split(separator)
    return separator.join(fields[:index] + fields[index + 1 :]) if line else line
