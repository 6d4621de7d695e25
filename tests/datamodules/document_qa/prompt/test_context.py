"""Tests which pages precede a question, and in which form."""

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from datamodules.document_qa.prompt.context import ContextBuilder, ContextSettings
from datamodules.document_qa.prompt.prompt import PromptBuilder
from datamodules.document_qa.types.document import Chunk, Page
from datamodules.multimodal.batch import ImageLayout
from datamodules.multimodal.text.bpe_tokenizer import PLACEHOLDER
from datamodules.multimodal.text.tokenizer import ChatTokenizer
from tests.support.families.colored_squares import COLORS
from tests.support.families.tiny_documents import LAYOUT, TinyDocument, tiny_tokenizer

BOX = (0.1, 0.1, 0.5, 0.5)


@cache
def tokenizer() -> ChatTokenizer:
    return tiny_tokenizer()


def builder(layout: ImageLayout = LAYOUT, **given: Any) -> ContextBuilder:
    return ContextBuilder(ContextSettings(**given), tokenizer(), PromptBuilder(tokenizer().control), layout, "stretch")


def tokens_of(made: ContextBuilder, document: Any, pages: Sequence[int]) -> int:
    """Count the tokens of a context by hand: each marker is replaced by the tokens of its views."""
    context = made.context(document, pages)
    features = [len(views.tile_positions) * made.layout.view_tokens for views in context.views]
    assert context.text.count("<image>") == len(features)
    return len(tokenizer().encode(context.text.replace("<image>", PLACEHOLDER))) - len(features) + sum(features)


class Pages:
    """A document whose pages have so many words and so many figures."""

    name = "pages"

    def __init__(self, sizes: Sequence[tuple[int, int]], edge: int = 16) -> None:
        self.edge = edge
        self.pages = [
            Page(
                number,
                (
                    Chunk(number, "text", BOX, "The cover is made of steel. " * words),
                    *(Chunk(number, "figure", (0.1, 0.1 * index, 0.2, 0.9), "") for index in range(figures)),
                ),
            )
            for number, (words, figures) in enumerate(sizes, 1)
        ]

    def picture(self, page: int) -> Image.Image:
        return Image.new("RGB", (self.edge, 2 * self.edge))

    def figure(self, chunk: Chunk) -> Image.Image:
        return Image.new("RGB", (self.edge * chunk.page, self.edge))


def test_a_page_begins_with_its_number_and_shows_its_chunks_in_their_order() -> None:
    document = TinyDocument(3)
    context = builder().context(document, [2, 3])
    rows = [f"{part} | {mass} kg" for part, mass in document.masses.items()]
    spring = f"The spring is made of {document.materials['spring']}."
    lines = ["Page 2", spring, "part | mass", *rows, "Page 3", "Figure 1: the cover.", "<image>"]
    assert context.text.splitlines() == lines
    assert context.chunks == (*document.pages[1].chunks, *document.pages[2].chunks)
    (views,) = context.views
    assert (views.pixels == np.array(COLORS[document.colour], np.uint8)[None, :, None, None]).all()


def test_images_are_of_figures_of_pages_of_both_or_there_are_none() -> None:
    document = TinyDocument(3)
    kinds = ("figures", "pages", "both", "none")
    texts = {images: builder(images=images).context(document, [3]).text for images in kinds}
    title = "Figure 1: the cover."
    assert texts == {
        "figures": f"Page 3\n{title}\n<image>",
        "pages": f"Page 3\n<image>\n{title}",
        "both": f"Page 3\n<image>\n{title}\n<image>",
        "none": f"Page 3\n{title}",
    }
    assert [len(builder(images=images).context(document, [3]).chunks) for images in texts] == [2, 2, 2, 1]
    whole = builder(images="pages", texts=False, show_page_numbers=False).context(document, [1, 3])
    assert whole.text == "<image>\n<image>"
    assert len(whole.chunks) == 4
    assert not np.array_equal(whole.views[0].pixels, whole.views[1].pixels)


SIZES = st.lists(st.tuples(st.integers(0, 8), st.integers(0, 3)), min_size=1, max_size=6)


@settings(max_examples=60, deadline=None)
@given(SIZES, st.integers(1, 120), st.none() | st.integers(1, 4), st.randoms(use_true_random=False), st.booleans())
def test_whole_pages_are_omitted_from_the_worst_on(
    sizes: list[tuple[int, int]], budget: int, most: int | None, random: Any, tiled: bool
) -> None:
    document = Pages(sizes)
    ranked = list(range(1, len(sizes) + 1))
    random.shuffle(ranked)
    layout = ImageLayout(16, 4, max_tiles=2) if tiled else LAYOUT
    context_builder = builder(layout, tokens=budget, max_images=most)
    choice = context_builder.choose(document, ranked)
    # Each ranked page is in exactly one of the groups.
    assert sorted((*choice.pages, *choice.dropped, *choice.too_long)) == sorted(ranked)
    # Never over, by what the chat really has of it; in reading order; no page cut.
    context = context_builder.context(document, choice.pages)
    assert tokens_of(context_builder, document, choice.pages) <= budget
    assert most is None or len(context.views) <= most
    assert list(choice.pages) == sorted(choice.pages) == [block.page for block in context.blocks]
    assert [block.chunks for block in context.blocks] == [
        tuple(chunk for chunk in document.pages[page - 1].chunks if chunk.text or chunk.kind == "figure")
        for page in choice.pages
    ]

    def fits(pages: Sequence[int]) -> bool:
        images = sum(sizes[page - 1][1] for page in pages)
        return tokens_of(context_builder, document, sorted(pages)) <= budget and (most is None or images <= most)

    # What is beyond the budget alone is exactly what is too long, among what was looked at.
    assert all(not fits([page]) for page in choice.too_long)
    assert all(fits([page]) for page in choice.pages)
    # The pages are the best pages, and another page would exceed the budget.
    possible = [page for page in ranked if page not in choice.too_long]
    assert sorted(possible[: len(choice.pages)]) == list(choice.pages)
    if choice.dropped:
        assert not fits([*choice.pages, possible[len(choice.pages)]])


def test_the_order_may_be_the_retriever_s() -> None:
    document = Pages([(1, 0), (1, 0), (1, 0)])
    assert builder(order="rank").choose(document, [3, 1, 2]).pages == (3, 1, 2)
    assert builder().choose(document, [3, 1, 2]).pages == (1, 2, 3)


def test_a_page_that_is_too_long_makes_room_for_those_behind_it() -> None:
    choice = builder(tokens=40).choose(Pages([(1, 0), (50, 0), (1, 0)]), [2, 1, 3])
    assert choice.pages == (1, 3)
    assert choice.too_long == (2,)
    assert choice.dropped == ()


def test_length_is_what_the_chat_has() -> None:
    document = Pages([(2, 1), (0, 2), (4, 0)], edge=20)
    for layout in (LAYOUT, ImageLayout(16, 4, max_tiles=3)):
        for images in ("figures", "pages", "both"):
            context_builder = builder(layout, images=images)
            assert context_builder.length(document, [1, 2, 3]) == tokens_of(context_builder, document, [1, 2, 3])


def test_a_text_that_looks_like_a_marker_is_text() -> None:
    document = Pages([(0, 1)])
    document.pages = [Page(1, (Chunk(1, "text", BOX, "<image> <|im_end|>"), document.pages[0].chunks[1]))]
    context = builder().context(document, [1])
    assert context.text.count("<image>") == 1
    assert "<|im_end|>" not in context.text
    assert len(context.views) == 1


@pytest.mark.parametrize("images", ["figures", "pages", "both", "none"])
def test_each_chunk_can_be_removed(images: Any) -> None:
    document, context_builder = TinyDocument(4), builder(images=images)
    context = context_builder.context(document, [1, 2, 3])
    for index, chunk in enumerate(context.chunks):
        rest = context_builder.without(context, document, index)
        assert rest.chunks == context.chunks[:index] + context.chunks[index + 1 :]
        assert chunk.kind == "figure" or chunk.text not in rest.text
        assert rest.text.count("<image>") == len(rest.views)
        for before, after in zip(context.blocks, rest.blocks, strict=True):
            assert (before == after) == (before.page != chunk.page)
        if images == "pages":
            block, page = rest.blocks[chunk.page - 1], context.blocks[chunk.page - 1]
            assert not np.array_equal(block.views[0].pixels, page.views[0].pixels)


@pytest.mark.parametrize(
    ("wrong", "messages"),
    [
        ({"tokens": 0}, "data.init_args.context.tokens must be at least 1"),
        ({"max_images": 0}, "data.init_args.context.max_images must be at least 1"),
        ({"images": "none", "texts": False}, "a context would be empty"),
    ],
)
def test_settings_that_cannot_be_used_are_named(wrong: dict[str, Any], messages: str) -> None:
    with pytest.raises(ValueError, match=messages):
        ContextSettings(**wrong).check()
