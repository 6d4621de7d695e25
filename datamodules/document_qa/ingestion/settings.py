"""Defines the settings of the ingestion."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

from datamodules.document_qa.ingestion.ocr.recognizer import Ocr
from engine.number_check import check_number

OnBroken = Literal["stop", "skip"]
Engine = Literal["processes", "ray"]

FORMAT = 2
"""Version of chunks and images; increased when the same settings give a different result.

It changes all keys of the cache, by which the documents of users are divided into splits.
"""
MARKDOWN_FORMAT = 3
"""The same of Markdown files alone."""


@dataclass(frozen=True)
class IngestionSettings:
    """How `prepare` converts PDFs, page images and Markdown files.

    Args:
        dpi: resolution of rendered pages, in pixels per inch.
        max_page_pixels: largest number of pixels of a page image; larger pages are rendered at a lower resolution.
        max_pages: largest number of pages of a document; longer documents count as broken.
        tables: detect ruled tables in PDFs; otherwise their words are text.
        ocr: program that recognizes the text of pages without any (scans): `rapidocr` (English and Chinese; its models
            are in its package), `tesseract` (the program on the PATH) or `none`.
        heading_level: in Markdown, headings up to this level begin a page; 0 for one page per file.
        on_broken: what to do with unreadable documents (encrypted, corrupt, too large): `stop` with an error, or `skip`
            them with a warning until their files change. `prepare` retries those at which a worker process died or
            whose files could not be opened; with `stop` also those at which a reader failed.
        engine: what runs the worker processes: `processes` on this machine, or `ray`, also on other machines. Both
            write the same cache.
        ray_address: address of a running Ray cluster, `HOST:PORT` or `auto`. With null it is the environment variable
            RAY_ADDRESS; if that is not set, a Ray is started that listens on localhost only.
        workers: number of worker processes; null for one per CPU that may be used, with Ray per CPU of the cluster.
    """

    dpi: int = 144
    max_page_pixels: int = 4_000_000
    max_pages: int = 5_000
    tables: bool = True
    ocr: Ocr = "none"
    heading_level: int = 2
    on_broken: OnBroken = "stop"
    engine: Engine = "processes"
    ray_address: str | None = None
    workers: int | None = None

    def check(self, name: str = "ingestion.") -> None:
        """Check the settings.

        Args:
            name: prefix of the settings in messages.

        Raises:
            ValueError: a value is invalid.
        """
        check_number(f"{name}dpi", self.dpi, at_least=18, at_most=1200)
        check_number(f"{name}max_page_pixels", self.max_page_pixels, at_least=10_000, at_most=100_000_000)
        if self.ocr not in get_args(Ocr):
            raise ValueError(f"{name}ocr must be one of {', '.join(get_args(Ocr))}; got {self.ocr!r}")
        check_number(f"{name}max_pages", self.max_pages, at_least=1)
        check_number(f"{name}heading_level", self.heading_level, at_least=0, at_most=6)
        if self.on_broken not in get_args(OnBroken):
            raise ValueError(f"{name}on_broken must be stop or skip, got {self.on_broken!r}")
        if self.engine not in get_args(Engine):
            raise ValueError(f"{name}engine must be one of {', '.join(get_args(Engine))}; got {self.engine!r}")
        if self.ray_address is not None and self.engine != "ray":
            raise ValueError(f"{name}ray_address needs {name}engine ray, got {self.engine!r}")
        check_number(f"{name}workers", self.workers, at_least=1)

    @property
    def identity(self) -> dict[str, Any]:
        """All settings that pages and chunks depend on."""
        return {
            "format": FORMAT,
            "dpi": self.dpi,
            "max_page_pixels": self.max_page_pixels,
            "max_pages": self.max_pages,
            "tables": self.tables,
            "heading_level": self.heading_level,
            **({} if self.ocr == "none" else {"ocr": self.ocr}),  # documents without it keep their keys
        }
