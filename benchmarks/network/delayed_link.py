"""Simulates a cable with a delay: a process carries frames between the `eth0` of two network namespaces.

Each `eth0` is a TAP device of Linux (Documentation/networking/tuntap.rst): frames that its namespace sends are read
from a file, and frames that are written to the file arrive in the namespace.
"""

import fcntl
import os
import select
import signal
import struct
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from multiprocessing.connection import Connection

from benchmarks.network.namespaces import enter

_TUNSETIFF, _IFF_TAP, _IFF_NO_PI = 0x400454CA, 0x0002, 0x1000  # of linux/if_tun.h
_ROOM = 1 << 17
"""Bytes per read; a read returns a single frame."""


def carry(connection: Connection, names: Sequence[str]) -> None:
    """Create `eth0` in both namespaces, report it through `connection`, and carry frames until it is closed.

    Args:
        connection: sends None when the cable exists, or the reason why it cannot; then receives the delay of frames in
            seconds.
        names: names of the two namespaces.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the benchmark ends this process after the trainings
    try:
        ends = [_tap(name) for name in names]
    except OSError as error:
        connection.send(f"no TAP device here: {error}")
        return
    connection.send(None)
    delay = 0.0
    watched: list[int | Connection] = [*ends, connection]
    under_way: deque[tuple[float, int, bytes]] = deque()  # arrival time, end of the cable, frame
    while True:
        # Sleeps until the next frame is due, or until one of the ends has something to read.
        wait = max(0.0, under_way[0][0] - time.monotonic()) if under_way else None
        readable, _, _ = select.select(watched, [], [], wait)
        for here, there in (ends, ends[::-1]):
            if here in readable:
                # Bytes leave in the order of arrival: the delay changes only between turns, when the cable is idle.
                under_way.append((time.monotonic() + delay, there, os.read(here, _ROOM)))
        if connection in readable:
            try:
                delay = connection.recv()
            except EOFError:
                return
        while under_way and under_way[0][0] <= time.monotonic():
            _, end, frame = under_way.popleft()
            with suppress(OSError):  # that end is down, and its frames are lost, as with any cable
                os.write(end, frame)


def _tap(name: str) -> int:
    # The device is created in the namespace that this thread is in, and stays there.
    enter(name)
    device = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(device, _TUNSETIFF, struct.pack("16sH22x", b"eth0", _IFF_TAP | _IFF_NO_PI))
    return device
