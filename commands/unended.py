"""A start of a run that the kernel ended for its memory says nothing any more; the next start of the run says it.

Of several processes the others say it themselves (engine.watch); this is for a single one, and for all of them at once.
"""

import json
import logging
from pathlib import Path

from engine.events import event
from engine.host_memory import killed_since, kills_counter, oom_kills

log = logging.getLogger("lockstep")

NOTE = ".running.json"
"""In a run's folder while a training writes into it: how many processes the kernel had killed when it began."""


def note_start(folder: Path) -> None:
    """Says what became of the start before, if it has not ended by itself; to be called by the one with the lock."""
    path = folder / NOTE
    counter = kills_counter()
    try:
        before = json.loads(path.read_text(encoding="utf-8"))
        if counter and before["counter"] == counter and (killed := killed_since(before["kills"], "the last start")):
            said = "WARNING: the last start of this run did not end by itself;%s"
            log.warning(said, killed, extra=event("out_of_memory", error=killed.strip()))
    except FileNotFoundError:
        pass
    except (ValueError, LookupError, TypeError) as error:  # torn by a kill
        log.debug("%s tells nothing of the last start: %s", path, error)
    path.write_text(json.dumps({"counter": counter, "kills": oom_kills()}), encoding="utf-8")


def note_end(folder: Path) -> None:
    """The training has ended, and has said why if it was not to."""
    (folder / NOTE).unlink(missing_ok=True)
