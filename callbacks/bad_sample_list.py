"""runs/NAME/bad_samples.jsonl: what to mend in the data, one line for each sample that was left out."""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path

from engine.appended_file import AppendedFile
from engine.bad_samples import LeftOut

_LONGEST = 2_000  # characters of what is wrong with a sample; it may quote the sample


class BadSampleList:
    """Each sample of a stage is listed once, also when it is drawn in every epoch and the run is resumed.

    A stream's samples are told by their position, another one in each epoch, and so listed once an epoch.

    Args:
        folder: the run's.
    """

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder) / "bad_samples.jsonl"

    def add(self, stage: str, epoch: int, step: int, left_out: Iterable[Sequence[LeftOut]]) -> None:
        """
        Args:
            stage: train, val, test or predict.
            epoch: in which they were met.
            step: optimizer steps done by then.
            left_out: of each process.
        """
        listed = self._listed()
        file = AppendedFile(self.path)
        for process, samples in enumerate(left_out):
            for one in samples:
                key = stage, one.sample, one.what[:_LONGEST]
                if key in listed:
                    continue
                listed.add(key)
                line = dict(zip(("stage", "sample", "what"), key, strict=True))
                line |= {"epoch": epoch, "step": step, "process": process}
                file.write(json.dumps(line, ensure_ascii=False) + "\n")
        file.close()

    def _listed(self) -> set[tuple[str, int, str]]:
        """A line that a kill has torn is passed over."""
        listed = set()
        if self.path.exists():
            for text in self.path.read_text(encoding="utf-8", errors="replace").splitlines():
                try:
                    line = json.loads(text)
                    listed.add((line["stage"], line["sample"], line["what"]))
                except (ValueError, LookupError, TypeError):
                    continue
        return listed
