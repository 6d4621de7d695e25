"""A `prepare` that was done already is told from its files, before the imports, which take longer than to look."""

import hashlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from pathlib import Path

from engine.prepared_files import PreparedFiles

log = logging.getLogger("lockstep")

_PROJECT = Path(__file__).parents[1]
_CODE = (".py", ".yaml")
_HIDDEN = ("__pycache__", "tests", "benchmarks", "docs", "runs", "data")


def nothing_to_do(arguments: Sequence[str]) -> bool:
    """Whether this command was done and nothing that it read, wrote or consists of was written to since; says so."""
    if arguments[:1] != ["prepare"]:
        return False
    try:
        done = json.loads(_record(arguments).read_text())
    except (OSError, ValueError, RuntimeError):  # the last of a user who has no home
        return False
    listed = _listed(map(Path, (*done["read"], *done["written"])))
    if done["code"] != _digest(_code(arguments)) or done["files"] != _digest(listed):
        return False
    print(
        f"Nothing to do: everything was prepared on {done['time']}, and of the {len(listed):,} files that it is made "
        "from and kept in none was written to since.",
        file=sys.stderr,
    )
    return True


def note(arguments: Sequence[str], files: PreparedFiles, begun: float) -> None:
    """Remembers that a `prepare` was done, where a record may be kept: without one it looks again, which is as right.

    Args:
        begun: when it began to read, as of time.time(). What was written to afterwards may not have been read.
    """
    read = _listed(files.read)
    if any(changed / 1e9 >= begun for _, _, changed in read):
        return
    done = {
        "time": datetime.now().astimezone().isoformat(" ", "seconds"),
        "read": [str(path.absolute()) for path in files.read],
        "written": [str(path.absolute()) for path in files.written],
        "code": _digest(_code(arguments)),
        "files": _digest(_listed(path.absolute() for path in (*files.read, *files.written))),
    }
    try:
        record = _record(arguments)
        record.parent.mkdir(parents=True, exist_ok=True)
        beside = record.with_suffix(f".{os.getpid()}.{time.monotonic_ns()}")
        beside.write_text(json.dumps(done))
        beside.replace(record)
    except (OSError, RuntimeError) as error:
        log.debug("no record of this prepare: %s", error)


def _record(arguments: Sequence[str]) -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    packages = [str(path) for path in map(Path, sys.path) if path.name == "site-packages"]
    changed = [Path(path).stat().st_mtime_ns for path in packages if Path(path).is_dir()]  # by whatever was installed
    key = json.dumps([*arguments, str(Path.cwd()), str(_PROJECT), sys.executable, packages, changed])
    return cache / "lockstep" / "prepared" / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"


def _code(arguments: Sequence[str]) -> list[tuple[str, int, int]]:
    """The program and the files that the command names."""
    named = [Path(given) for argument in arguments for given in (argument, argument.rpartition("=")[2])]
    parts = [path for path in _PROJECT.iterdir() if path.name not in _HIDDEN and not path.name.startswith(".")]
    found = [one for one in _listed(parts) if one[0].endswith(_CODE)]
    return [*found, *_listed(path.absolute() for path in named if path.is_file())]


def _listed(paths: Iterable[Path]) -> list[tuple[str, int, int]]:
    """Path, size and nanosecond of the last change of all files there; what is missing has size -1."""
    return [one for path in paths for one in sorted(_walked(path))]


def _walked(path: Path) -> Iterator[tuple[str, int, int]]:
    try:
        state = path.stat()
    except OSError:
        yield str(path), -1, 0
        return
    if not path.is_dir():
        yield str(path), state.st_size, state.st_mtime_ns
        return
    met = set()
    for folder, folders, files in os.walk(path, followlinks=True):
        state = os.stat(folder)
        if (state.st_dev, state.st_ino) in met:  # a link to a folder around it
            folders[:] = []
            continue
        met.add((state.st_dev, state.st_ino))
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in files:
            one = os.path.join(folder, name)
            try:
                state = os.stat(one)
            except OSError:
                yield one, -1, 0
            else:
                yield one, state.st_size, state.st_mtime_ns


def _digest(listed: list[tuple[str, int, int]]) -> str:
    return hashlib.sha256(json.dumps(listed).encode()).hexdigest()
