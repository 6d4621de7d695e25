"""What is wrong with one sample, as against with the run. Raised where torch is not imported, too."""

from typing import Any


class BadSample(ValueError):
    """A sample that cannot be used: its row is malformed, its image cannot be decoded. Its message names file and row.

    A data set raises it of what is wrong with a sample. What is wrong with the run (a missing folder, a disk that does
    not answer, a wrong setting) is another error, and always ends it.

    Args:
        what: names the sample, with file and row where it has them, and says what is wrong.
        sample: its index, if whoever raises it knows that; otherwise it is found by loading the batch one by one.
    """

    def __init__(self, what: str, sample: int | None = None) -> None:
        super().__init__(what)
        self.sample = sample

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (*self.args, self.sample)
