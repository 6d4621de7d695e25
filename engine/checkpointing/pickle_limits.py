"""Limits a checkpoint's pickle in size and content, before it is unpickled.

torch's `weights_only` unpickler runs no foreign code, but a pickle of 4 MB can make it build millions of nested lists
for minutes. This scan reads the opcodes without building anything and stops at the first limit.
"""

import pickle
from typing import Final

_MAX_STACK = 50_000  # objects under construction; torch.save writes lists and dicts in batches of 1,000 items
_MAX_OPCODES = 10_000_000  # a tensor takes about 25

_MARK, _STOP, _GLOBAL = pickle.MARK[0], pickle.STOP[0], pickle.GLOBAL[0]

_ARGUMENT: Final[dict[int, int]] = {
    opcode[0]: size
    for size, opcodes in {
        0: (
            pickle.NONE, pickle.NEWTRUE, pickle.NEWFALSE, pickle.EMPTY_TUPLE, pickle.EMPTY_LIST, pickle.EMPTY_DICT,
            pickle.EMPTY_SET, pickle.MARK, pickle.TUPLE, pickle.TUPLE1, pickle.TUPLE2, pickle.TUPLE3, pickle.APPEND,
            pickle.APPENDS, pickle.SETITEM, pickle.SETITEMS, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD,
            pickle.BINPERSID, pickle.STOP,
        ),
        1: (pickle.PROTO, pickle.BININT1, pickle.BINGET, pickle.BINPUT),
        2: (pickle.BININT2,),
        4: (pickle.BININT, pickle.LONG_BINGET, pickle.LONG_BINPUT),
        8: (pickle.BINFLOAT,),
    }.items()
    for opcode in opcodes
}  # fmt: skip
"""{opcode: bytes of its argument} of all opcodes of torch's unpickler whose argument has a fixed size."""

_LENGTH: Final[dict[int, int]] = {pickle.BINUNICODE[0]: 4, pickle.SHORT_BINSTRING[0]: 1, pickle.LONG1[0]: 1}
"""{opcode: bytes of the length of its argument}"""

_TO_MARK: Final[dict[int, int]] = {pickle.TUPLE[0]: 1, pickle.APPENDS[0]: 0, pickle.SETITEMS[0]: 0}
"""{opcode that removes all objects down to the last mark: objects that it adds}"""

_GROWTH: Final[dict[int, int]] = {
    opcode[0]: change
    for change, opcodes in {
        0: (pickle.PROTO, pickle.BINPUT, pickle.LONG_BINPUT, pickle.TUPLE1, pickle.BINPERSID),
        -1: (pickle.APPEND, pickle.TUPLE2, pickle.REDUCE, pickle.NEWOBJ, pickle.BUILD),
        -2: (pickle.SETITEM, pickle.TUPLE3),
    }.items()
    for opcode in opcodes
}
"""{opcode: change of the number of objects under construction}; every other opcode adds 1."""


def find_excess(data: bytes) -> str | None:
    """Return which limit a pickle exceeds or why it is not torch's, None if it may be unpickled.

    Args:
        data: content of a checkpoint's `data.pkl`.
    """
    position = stack = count = 0
    marks: list[int] = []
    try:
        while (opcode := data[position]) != _STOP:
            position += 1
            count += 1
            if opcode in _ARGUMENT:
                position += _ARGUMENT[opcode]
            elif opcode in _LENGTH:
                start, position = position, position + _LENGTH[opcode]
                position += int.from_bytes(data[start:position], "little")
            elif opcode == _GLOBAL:
                position = data.index(b"\n", data.index(b"\n", position) + 1) + 1  # two lines: module, name
            else:
                return f"it has the opcode {bytes([opcode])!r}, which torch.save does not write"
            # Simulate the size of the unpickler's stack. A mark remembers the size at which a container began.
            if opcode == _MARK:
                marks.append(stack)
            elif opcode in _TO_MARK:
                stack = marks.pop() + _TO_MARK[opcode]
            else:
                stack += _GROWTH.get(opcode, 1)
            if stack + len(marks) > _MAX_STACK:
                return f"it nests more than {_MAX_STACK:,} objects"
            if count > _MAX_OPCODES:
                return f"it has more than {_MAX_OPCODES:,} opcodes"
    except (IndexError, ValueError):
        return "it ends before its last opcode"
    return None
