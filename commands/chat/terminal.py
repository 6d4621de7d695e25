"""Prints the parts of an answer in a terminal: texts as they are generated, tables and bars at the end."""

from collections.abc import Iterator

from rich.console import Console
from rich.markup import escape
from rich.table import Table as RichTable
from rich.text import Text as RichText

from commands.answers.answer_blocks import AnswerBlock, Bars, Chart, Note, Pictures, Slider, Table, Text

_BAR = 24


def print_blocks(console: Console, blocks: Iterator[AnswerBlock]) -> None:
    """Print the blocks of an answer."""
    later: dict[str, AnswerBlock] = {}
    printed: dict[str, str] = {}
    current: str | None = None
    for block in blocks:
        if not isinstance(block, Text):
            later[block.key] = block
            continue
        later.pop(block.key, None)  # a note of progress that the text replaces
        style = "dim" if block.faint else ""
        before = printed.get(block.key)
        # A generated text arrives as a whole each time: only its new end is printed.
        if current == block.key and before is not None and block.text.startswith(before):
            console.print(RichText(block.text[len(before) :], style), end="")
        else:
            if current is not None:
                console.print()
            head = f"{block.title}: " if block.title else ""
            console.print(RichText.assemble((head, "bold"), (block.text, style)), end="")
        current, printed[block.key] = block.key, block.text
    if current is not None:
        console.print()
    for block in later.values():
        _print_block(console, block)


def _print_block(console: Console, block: AnswerBlock) -> None:
    if isinstance(block, Note):
        console.print(RichText(block.text, "dim"))
        return
    title = getattr(block, "title", "")
    if isinstance(block, Bars):
        # Rich reads [words in brackets] as markup, which texts of the data may contain.
        table = RichTable(title=escape(title) or None, title_justify="left", show_header=False, box=None)
        for bar in block.bars:
            drawn = "#" * round(_BAR * bar.share)
            table.add_row(escape(bar.label), f"[blue]{drawn}[/]", f"{100 * bar.share:.1f} %")
        console.print(table)
    elif isinstance(block, Table):
        table = RichTable(title=escape(title) or None, title_justify="left", box=None, pad_edge=False)
        for index, name in enumerate(block.columns):
            is_number = any(isinstance(row[index], (int, float)) for row in block.rows)
            table.add_column(escape(name), justify="right" if is_number else "left", overflow="fold")
        for row in block.rows:
            table.add_row(*(escape(cell) if isinstance(cell, str) else f"{cell:.4g}" for cell in row))
        console.print(table)
    elif isinstance(block, Chart):
        for mark in block.marks:
            step = "" if mark.step is None else f"step {mark.step:g}"
            parts = [step, "" if mark.value is None else f"{mark.value:.4g} %"]
            console.print(RichText("  point of the answer: " + ", ".join(filter(None, parts))))
    elif isinstance(block, Slider):
        console.print(RichText(f"{title}: {block.stops[block.selected].label}", "dim"))
    elif isinstance(block, Pictures) and title:
        console.print(RichText(f"{title}:", "bold"))
        for picture in block.pictures:
            console.print(RichText("  " + "  ".join(filter(None, (picture.caption, picture.text)))))
    if getattr(block, "note", ""):
        console.print(RichText(str(getattr(block, "note", "")), "dim"))
