"""Builds contexts: as many whole pages of a document as fit a token budget."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from datamodules.document_qa.prompt.prompt import PromptBuilder
from datamodules.document_qa.types.document import Chunk, Document
from datamodules.document_qa.views.ablation import AblatedDocument
from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images.tiling import MARKER, ResizeMode, Views, concat_views, make_views, tile_grid
from datamodules.multimodal.text.bpe_tokenizer import PLACEHOLDER
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from engine.number_check import check_numbers

ShownImages = Literal["figures", "pages", "both", "none"]

_COUNTED = 1 << 14
"""Number of texts whose token counts are cached."""


@dataclass(frozen=True)
class ContextSettings:
    """Which part of a document a context contains. Pages that exceed the budget are dropped, lowest rank first.

    Args:
        tokens: largest number of tokens of a context, image tokens included; null for no limit.
        images: `figures` (each at its place on the page), `pages` (an image of each page before its text), `both` or
            `none`.
        max_images: largest number of images of a context; null for no limit.
        texts: include texts and tables as text, in addition to the images.
        show_page_numbers: write the page number before each page.
        order: order of the pages: `reading`, or `rank` (best first).
        evidence_in_training: in training, always include the evidence pages that a question names; without them the
            model would learn to guess.
        evidence_chunks: largest number of chunks whose importance is computed by removing them, on the best-ranked
            pages; each needs a prompt of its own. Null for all.
        empty: when no page fits: `stop` (the question is a bad sample) or `ask` it without a document.
    """

    tokens: int | None = 2048
    images: ShownImages = "figures"
    max_images: int | None = None
    texts: bool = True
    show_page_numbers: bool = True
    order: Literal["reading", "rank"] = "reading"
    evidence_in_training: bool = True
    evidence_chunks: int | None = 32
    empty: Literal["stop", "ask"] = "stop"

    def check(self, name: str = "data.init_args.context.") -> None:
        """Check the settings.

        Args:
            name: prefix of the settings in messages.

        Raises:
            ValueError: a value is invalid.
        """
        limits = {key: getattr(self, key) for key in ("tokens", "max_images", "evidence_chunks")}
        check_numbers(name, limits, at_least=1)
        if self.images == "none" and not self.texts:
            raise ValueError(f"{name}texts is false and images is none, so a context would be empty")


class ContextBlock(NamedTuple):
    """A page as a context shows it: its text, and the images at the markers in the text."""

    page: int
    text: str  # with a marker for each image
    chunks: tuple[Chunk, ...]  # that the block contains, as text or in an image
    images: tuple[Chunk | None, ...]  # the figure of each marker, or None for the page
    views: tuple[Views, ...] = ()  # of each marker; empty while only the length is measured


class PageSelection(NamedTuple):
    """Pages that are put into a context, and ranked pages that are not."""

    pages: tuple[int, ...]  # in the order of the context
    dropped: tuple[int, ...] = ()  # ranked, but beyond the budget
    too_long: tuple[int, ...] = ()  # longer than the budget by themselves


class Context(NamedTuple):
    """Pages that a prompt shows before the question."""

    blocks: tuple[ContextBlock, ...] = ()

    @property
    def text(self) -> str:
        """Text of all blocks, with a marker for each image."""
        return _join_texts(self.blocks)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All chunks, in the order of the context."""
        return tuple(chunk for block in self.blocks for chunk in block.chunks)

    @property
    def pages(self) -> tuple[int, ...]:
        """All page numbers, in the order of the context."""
        return tuple(block.page for block in self.blocks)

    @property
    def views(self) -> tuple[Views, ...]:
        """Views of each image, in the order of the markers."""
        return tuple(views for block in self.blocks for views in block.views)


class ContextBuilder:
    """Builds contexts.

    Args:
        settings: see ContextSettings.
        tokenizer: counts the tokens of a text.
        prompter: writes page headings and escapes special tokens.
        layout: number of tokens per view, and tiling.
        resize_mode: how an image becomes a view.
    """

    def __init__(
        self,
        settings: ContextSettings,
        tokenizer: ChatTokenizer,
        prompter: PromptBuilder,
        layout: ImageLayout,
        resize_mode: ResizeMode,
    ) -> None:
        self.settings, self.tokenizer, self.prompter = settings, tokenizer, prompter
        self.layout, self.resize_mode = layout, resize_mode
        self._counted: dict[str, int] = {}

    def choose(self, document: Document, ranked: Sequence[int]) -> PageSelection:
        """Select the best-ranked pages that fit the budget together; pages are never cut.

        A page that exceeds the budget by itself is skipped, so lower-ranked pages may follow.
        """
        chosen_blocks: list[ContextBlock] = []
        too_long: list[int] = []
        tokens = images = 0
        for number in ranked:
            block = self._measure_page(document, number)
            length = self._length(document, [block])
            if not self._fits(length, len(block.images)):
                too_long.append(number)
                continue
            tokens, images = tokens + length + 1, images + len(block.images)  # + 1: the line break between two pages
            if not self._fits(tokens - 1, images):
                break
            chosen_blocks.append(block)
        # The joined text may have more tokens than its parts, as tokens may span page boundaries.
        while chosen_blocks and not self._fits(self._length(document, self._sort_blocks(chosen_blocks)), 0):
            chosen_blocks.pop()
        used = {*too_long, *(block.page for block in chosen_blocks)}
        dropped = tuple(number for number in ranked if number not in used)
        return PageSelection(tuple(block.page for block in self._sort_blocks(chosen_blocks)), dropped, tuple(too_long))

    def context(self, document: Document, pages: Sequence[int]) -> Context:
        """Build the context of pages in the given order, with their images."""
        return Context(tuple(self._seen(document, self._measure_page(document, number)) for number in pages))

    def without(self, context: Context, document: Document, index: int) -> Context:
        """Return a context of the document without the chunk at an index of `context.chunks`."""
        gone = context.chunks[index]
        view = AblatedDocument(document, lambda chunk: chunk == gone)
        blocks = (
            self._seen(view, self._measure_page(view, block.page)) if block.page == gone.page else block
            for block in context.blocks
        )
        return Context(tuple(blocks))

    def features(self, views: Sequence[Views]) -> tuple[int, ...]:
        """Return the number of image tokens of each image."""
        return tuple(len(image.tile_positions) * self.layout.view_tokens for image in views)

    def length(self, document: Document, pages: Sequence[int]) -> int:
        """Return the number of tokens of a context, image tokens included."""
        return self._length(document, [self._measure_page(document, number) for number in pages])

    def _measure_page(self, document: Document, number: int) -> ContextBlock:
        """Return the block of a page, without views."""
        settings, page = self.settings, document.pages[number - 1]
        shows_pages, shows_figures = settings.images in ("pages", "both"), settings.images in ("figures", "both")
        lines: list[str] = []
        images: list[Chunk | None] = []
        chunks: list[Chunk] = []
        if shows_pages:
            lines.append(MARKER)
            images.append(None)
        for chunk in page.chunks:
            if chunk.kind == "figure" and shows_figures:
                lines.append(MARKER)
                images.append(chunk)
            elif chunk.kind != "figure" and settings.texts and chunk.text.strip():
                lines.append(self.prompter.escape(chunk.text.strip()))
            elif not shows_pages:
                continue
            chunks.append(chunk)
        if settings.show_page_numbers:
            lines.insert(0, self.prompter.page_heading(number))
        return ContextBlock(number, "\n".join(lines), tuple(chunks), tuple(images))

    def _seen(self, document: Document, block: ContextBlock) -> ContextBlock:
        pictures = (
            document.picture(block.page) if figure is None else document.figure(figure) for figure in block.images
        )
        return block._replace(views=tuple(make_views(picture, self.layout, self.resize_mode) for picture in pictures))

    def _fits(self, tokens: int, images: int) -> bool:
        """Return whether the budget allows so many tokens and images."""
        limits = (tokens, self.settings.tokens), (images, self.settings.max_images)
        return all(limit is None or number <= limit for number, limit in limits)

    def _sort_blocks(self, blocks: list[ContextBlock]) -> list[ContextBlock]:
        return sorted(blocks, key=lambda block: block.page) if self.settings.order == "reading" else blocks

    def _length(self, document: Document, blocks: Sequence[ContextBlock]) -> int:
        text = _join_texts(blocks)
        images = [(block.page, figure) for block in blocks for figure in block.images]
        # Each marker counts as one token of the text; the tokens of the image replace it.
        tokens = self._tokens(text.replace(MARKER, PLACEHOLDER)) - len(images)
        return tokens + sum(self._features(document, *image) for image in images)

    def _tokens(self, text: str) -> int:
        if text not in self._counted:
            if len(self._counted) >= _COUNTED:
                self._counted.clear()
            self._counted[text] = len(self.tokenizer.encode(text))
        return self._counted[text]

    def _features(self, document: Document, page: int, figure: Chunk | None) -> int:
        if self.layout.max_tiles == 1:
            return self.layout.view_tokens
        picture = document.picture(page) if figure is None else document.figure(figure)
        rows, columns = tile_grid(picture.height, picture.width, self.layout)
        return self.layout.view_tokens * (1 if rows * columns == 1 else 1 + rows * columns)


def sample_views(context: Context, layout: ImageLayout) -> Views:
    """Return all views of a context as the views of a single sample."""
    return concat_views(context.views, layout)


def _join_texts(blocks: Sequence[ContextBlock]) -> str:
    return "\n".join(block.text for block in blocks if block.text)
