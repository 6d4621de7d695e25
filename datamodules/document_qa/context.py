"""What of a document is put before a question: whole pages, as many as a budget holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from datamodules.document_qa.ablation import Without
from datamodules.document_qa.document import Chunk, Document
from datamodules.document_qa.prompt import Prompter
from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.images import MARKER, Fit, Views, joined, tiles, views_of
from datamodules.multimodal.tiny_tokenizer import PLACEHOLDER
from datamodules.multimodal.tokenizer import ChatTokenizer

ShownImages = Literal["figures", "pages", "both", "none"]

_COUNTED = 1 << 14
"""Texts whose numbers of tokens are kept in mind."""


@dataclass(frozen=True)
class ContextSettings:
    """What of a document is put before a question. Pages that do not fit are left out whole, the retriever's last ones first.

    Args:
        tokens: the most tokens of a context, those of its images included; null for any number.
        images: `figures` (each one where it stands on its page), `pages` (each page as it looks, before its text), `both` or `none`.
        max_images: the most images of a context; null for any number.
        texts: show texts and tables as text, beside the images.
        show_page_numbers: write a page's number before it.
        order: of the pages: `reading`, or `rank` (the retriever's best first).
        evidence_in_training: in training, pages that a question names as its evidence are shown whatever the retriever says: without them the answer would have to be guessed.
        evidence_chunks: where evidence is looked for, of how many chunks at most it is asked what leaving them out costs, those of the retriever's best pages; each takes the memory and the reading of a context of its own. Null for all.
        empty: when no page is left: `stop` (the question is unusable) or `ask` it without a document.
    """  # noqa: E501

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
        """
        Raises:
            ValueError: a value cannot be used.
        """
        for key in ("tokens", "max_images", "evidence_chunks"):
            most = getattr(self, key)
            if most is not None and most < 1:
                raise ValueError(f"{name}{key} must be at least 1, or null for any number; got {most}")
        if self.images == "none" and not self.texts:
            raise ValueError(f"{name}texts is false and images is none: a context would show nothing")


class Block(NamedTuple):
    """A page in a context."""

    page: int
    text: str  # with a marker for each image
    chunks: tuple[Chunk, ...]  # that it shows, as text or in an image
    images: tuple[Chunk | None, ...]  # of each marker the figure, or None: the page
    views: tuple[Views, ...] = ()  # of each marker; none while it is only measured


class Choice(NamedTuple):
    """The pages of a context."""

    pages: tuple[int, ...]  # in the context's order
    dropped: tuple[int, ...] = ()  # ranked, but beyond the budget
    too_long: tuple[int, ...] = ()  # beyond the budget even alone


class Context(NamedTuple):
    """Pages as they are put before a question."""

    blocks: tuple[Block, ...] = ()

    @property
    def text(self) -> str:
        return _joined(self.blocks)

    @property
    def chunks(self) -> tuple[Chunk, ...]:
        """All that it shows, in its order."""
        return tuple(chunk for block in self.blocks for chunk in block.chunks)

    @property
    def pages(self) -> tuple[int, ...]:
        return tuple(block.page for block in self.blocks)

    @property
    def views(self) -> tuple[Views, ...]:
        """Of each image, in the order of the markers."""
        return tuple(views for block in self.blocks for views in block.views)


class ContextBuilder:
    """Makes contexts.

    Args:
        settings: see there.
        tokenizer: the run's, which says how many tokens a text has.
        prompter: says what stands before a page.
        layout: what tower and projector make of a view.
        fit: how an image becomes a view.
    """

    def __init__(
        self, settings: ContextSettings, tokenizer: ChatTokenizer, prompter: Prompter, layout: ImageLayout, fit: Fit
    ) -> None:
        self.settings, self.tokenizer, self.prompter = settings, tokenizer, prompter
        self.layout, self.fit = layout, fit
        self._counted: dict[str, int] = {}

    def choose(self, document: Document, ranked: Sequence[int]) -> Choice:
        """As many of the ranked pages as the budget holds: the worst are left out until it does, and none is cut.

        A page that is beyond the budget even alone makes room for those that rank behind it.
        """
        kept: list[Block] = []
        too_long: list[int] = []
        tokens = images = 0
        for number in ranked:
            block = self._measured(document, number)
            length = self._length(document, [block])
            if not self._holds(length, len(block.images)):
                too_long.append(number)
                continue
            tokens, images = tokens + length + 1, images + len(block.images)  # a line's end between two pages
            if not self._holds(tokens - 1, images):
                break
            kept.append(block)
        # A tokenizer may find other tokens where two pages meet.
        while kept and not self._holds(self._length(document, self._ordered(kept)), 0):
            kept.pop()
        used = {*too_long, *(block.page for block in kept)}
        dropped = tuple(number for number in ranked if number not in used)
        return Choice(tuple(block.page for block in self._ordered(kept)), dropped, tuple(too_long))

    def context(self, document: Document, pages: Sequence[int]) -> Context:
        """Pages in the order given, with their images."""
        return Context(tuple(self._seen(document, self._measured(document, number)) for number in pages))

    def without(self, context: Context, document: Document, place: int) -> Context:
        """A context of the document, without the chunk at a place in its `chunks`."""
        gone = context.chunks[place]
        shown = Without(document, lambda chunk: chunk == gone)
        blocks = (
            self._seen(shown, self._measured(shown, block.page)) if block.page == gone.page else block
            for block in context.blocks
        )
        return Context(tuple(blocks))

    def features(self, views: Sequence[Views]) -> tuple[int, ...]:
        """How many vectors stand for each image."""
        return tuple(len(one.places) * self.layout.view_tokens for one in views)

    def length(self, document: Document, pages: Sequence[int]) -> int:
        """Tokens of a context, those of its images included."""
        return self._length(document, [self._measured(document, number) for number in pages])

    def _measured(self, document: Document, number: int) -> Block:
        """A page without its views."""
        settings, page = self.settings, document.pages[number - 1]
        whole, figures = settings.images in ("pages", "both"), settings.images in ("figures", "both")
        lines: list[str] = []
        images: list[Chunk | None] = []
        chunks: list[Chunk] = []
        if whole:
            lines.append(MARKER)
            images.append(None)
        for chunk in page.chunks:
            if chunk.kind == "figure" and figures:
                lines.append(MARKER)
                images.append(chunk)
            elif chunk.kind != "figure" and settings.texts and chunk.text.strip():
                lines.append(self.prompter.plain(chunk.text.strip()))
            elif not whole:
                continue
            chunks.append(chunk)
        if settings.show_page_numbers:
            lines.insert(0, self.prompter.page(number))
        return Block(number, "\n".join(lines), tuple(chunks), tuple(images))

    def _seen(self, document: Document, block: Block) -> Block:
        pictures = (
            document.picture(block.page) if figure is None else document.figure(figure) for figure in block.images
        )
        return block._replace(views=tuple(views_of(picture, self.layout, self.fit) for picture in pictures))

    def _holds(self, tokens: int, images: int) -> bool:
        """Whether a context may have so many."""
        limits = (tokens, self.settings.tokens), (images, self.settings.max_images)
        return all(most is None or number <= most for number, most in limits)

    def _ordered(self, blocks: list[Block]) -> list[Block]:
        return sorted(blocks, key=lambda block: block.page) if self.settings.order == "reading" else blocks

    def _length(self, document: Document, blocks: Sequence[Block]) -> int:
        text = _joined(blocks)
        images = [(block.page, figure) for block in blocks for figure in block.images]
        # Each marker is a token already, in whose place the image's come.
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
        rows, columns = tiles(picture.height, picture.width, self.layout)
        return self.layout.view_tokens * (1 if rows * columns == 1 else 1 + rows * columns)


def joined_views(context: Context, layout: ImageLayout) -> Views:
    """All views of a context, as those of one sample."""
    return joined(context.views, layout)


def _joined(blocks: Sequence[Block]) -> str:
    return "\n".join(block.text for block in blocks if block.text)
