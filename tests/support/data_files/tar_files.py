"""Writes tar archives."""

import io
import tarfile
from collections.abc import Iterable
from typing import Literal


def tar_of(files: Iterable[tuple[str, bytes]], mode: Literal["w", "w:gz"] = "w") -> bytes:
    """Return a tar archive of (name, content) in this order; a name may occur twice."""
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode=mode) as tar:
        for name, content in files:
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return memory.getvalue()
