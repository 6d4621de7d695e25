"""Recognizes text with the program tesseract (Apache 2.0), of Debian's package tesseract-ocr for example."""

import csv
import io
import os
import re
import shutil
import subprocess
from typing import TYPE_CHECKING

from typing_extensions import override

from datamodules.document_qa.ingestion.ocr.recognizer import OcrLine, RecognitionError, Recognizer

if TYPE_CHECKING:
    from PIL.Image import Image

_SECONDS = 120.0
"""Time limit of a page."""

_LANGUAGES = ("eng", "chi_sim")
"""Languages that are looked for, as far as they are installed."""

_WORD = "5"  # level of a word in tesseract's table
_CJK = re.compile("[\u3000-\u30ff\u3400-\u9fff\uff00-\uffef]")


class Tesseract(Recognizer):
    """The program on the PATH, started once a page, without a shell, with one thread and a time limit.

    Raises:
        ValueError: the program or all of its languages are not installed, or it does not run.
    """

    def __init__(self) -> None:
        program = shutil.which("tesseract")
        if program is None:
            raise ValueError(
                "data.init_args.ingestion.ocr is tesseract, but there is no such program here: install it "
                "(Debian: apt-get install tesseract-ocr tesseract-ocr-chi-sim), or use rapidocr"
            )
        self._program = program
        try:
            installed = self._run(["--list-langs"], b"").split()
        except RecognitionError as error:
            raise ValueError(
                f"data.init_args.ingestion.ocr is tesseract, but {program} --list-langs does not run: {error}; install "
                "it again, or use rapidocr"
            ) from error
        languages = [language for language in _LANGUAGES if language in installed]
        if not languages:
            raise ValueError(
                f"data.init_args.ingestion.ocr is tesseract, but {program} has none of the languages "
                f"{', '.join(_LANGUAGES)} (Debian: tesseract-ocr-eng, tesseract-ocr-chi-sim)"
            )
        self._languages = "+".join(languages)

    @override
    def lines(self, picture: "Image") -> list[OcrLine]:
        file = io.BytesIO()
        # The image only passes through a pipe, so a fast compression is best.
        picture.save(file, format="PNG", compress_level=1)
        table = self._run(["stdin", "stdout", "-l", self._languages, "--psm", "3", "tsv"], file.getvalue())
        words: dict[tuple[str, ...], list[OcrLine]] = {}
        # Tesseract quotes nothing, and a recognized text may be a quotation mark.
        for row in csv.DictReader(io.StringIO(table), delimiter="\t", quoting=csv.QUOTE_NONE):
            if row["level"] == _WORD and row["text"] and row["text"].strip():
                left, top, width, height = (int(row[name]) for name in ("left", "top", "width", "height"))
                position = tuple(row[name] for name in ("block_num", "par_num", "line_num"))
                words.setdefault(position, []).append(OcrLine((left, top, left + width, top + height), row["text"]))
        return [_join_words(line) for line in words.values()]

    def _run(self, arguments: list[str], image: bytes) -> str:
        # One thread: each worker process runs a program of its own.
        environ = {**os.environ, "OMP_THREAD_LIMIT": "1"}
        try:
            done = subprocess.run(
                [self._program, *arguments],
                input=image,
                capture_output=True,
                timeout=_SECONDS,
                env=environ,
                check=True,
            )
        except subprocess.TimeoutExpired as error:
            raise RecognitionError(f"tesseract has taken more than {_SECONDS:g} s") from error
        except (OSError, subprocess.CalledProcessError) as error:
            reason = (getattr(error, "stderr", None) or str(error).encode()).decode(errors="replace")
            raise RecognitionError(f"tesseract failed: {' '.join(reason.split())[-200:]}") from error
        return done.stdout.decode(errors="replace")


def _join_words(words: list[OcrLine]) -> OcrLine:
    """Join the words of a line, without spaces between Chinese characters."""
    text = words[0].text
    for word in words[1:]:
        close = _CJK.match(text[-1]) and _CJK.match(word.text[0])
        text += word.text if close else f" {word.text}"
    lefts, tops, rights, bottoms = zip(*(word.box for word in words), strict=True)
    return OcrLine((min(lefts), min(tops), max(rights), max(bottoms)), text)
