"""How documents become pages and chunks."""

from dataclasses import dataclass
from typing import Any, Literal, get_args

OnBroken = Literal["stop", "skip"]

FORMAT = 2
"""Goes up when the same settings give other chunks or pictures, so that no old ones are taken for new ones."""


@dataclass(frozen=True)
class IngestionSettings:
    """What `prepare` makes of PDFs, page images and Markdown files.

    Args:
        dpi: pixels an inch that pages are rendered at.
        max_page_pixels: the most pixels of a page's picture, width x height; a larger page gets fewer pixels an inch.
        max_pages: the most pages of a document; one with more counts as broken.
        tables: whether ruled tables are looked for in PDFs; if not, their words are text.
        heading_level: in Markdown, headings up to this level begin a page; 0 for one page a file.
        on_broken: what becomes of a document that cannot be read (encrypted, damaged, too large): `stop` (an error that names it) or `skip` (it is named and left out, until it is written to; `prepare` with `stop` tries those again at which a process has died).
        workers: processes that work at once; null for one a core.
    """  # noqa: E501

    dpi: int = 144
    max_page_pixels: int = 4_000_000
    max_pages: int = 5_000
    tables: bool = True
    heading_level: int = 2
    on_broken: OnBroken = "stop"
    workers: int | None = None

    def check(self, name: str = "ingestion.") -> None:
        """
        Args:
            name: of these settings, for errors.

        Raises:
            ValueError: a value cannot be used.
        """
        if not 18 <= self.dpi <= 1200:
            raise ValueError(f"{name}dpi must be 18 to 1200, got {self.dpi}")
        if not 10_000 <= self.max_page_pixels <= 100_000_000:
            raise ValueError(f"{name}max_page_pixels must be 10,000 to 100,000,000, got {self.max_page_pixels}")
        if self.max_pages < 1:
            raise ValueError(f"{name}max_pages must be at least 1, got {self.max_pages}")
        if not 0 <= self.heading_level <= 6:
            raise ValueError(f"{name}heading_level must be 0 to 6, got {self.heading_level}")
        if self.on_broken not in get_args(OnBroken):
            raise ValueError(f"{name}on_broken must be stop or skip, got {self.on_broken!r}")
        if self.workers is not None and self.workers < 1:
            raise ValueError(f"{name}workers must be at least 1, or null for one a core; got {self.workers}")

    @property
    def identity(self) -> dict[str, Any]:
        """All that pages and chunks depend on, beside the document itself."""
        return {
            "format": FORMAT,
            "dpi": self.dpi,
            "max_page_pixels": self.max_page_pixels,
            "max_pages": self.max_pages,
            "tables": self.tables,
            "heading_level": self.heading_level,
        }
