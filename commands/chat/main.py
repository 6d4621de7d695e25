"""Runs `python train.py chat`: reads lines from the terminal or from a pipe, and prints answers."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.markup import escape

from commands.answers.answer_service import AnswerService, UserInputError
from commands.chat.chat_session import ChatCommand, ChatSession, parse_command
from commands.chat.terminal import print_blocks

_MAX_LINE_LENGTH = 4000


def chat(service: AnswerService, folder: Path, stdin: TextIO = sys.stdin, console: Console | None = None) -> None:
    """Answer the lines of a user until the input ends, `/quit` or Ctrl-C.

    Args:
        service: answer service of the model.
        folder: run directory, in which the history of the terminal's lines is kept.
        stdin: where the lines come from. If it is not a terminal, they are read without editing and repeated.
        console: where answers are printed.
    """
    console = console or Console(highlight=False, soft_wrap=True)
    session = ChatSession(service)
    console.print(
        f"[bold]{escape(folder.name)}[/] " + escape(", ".join(f"{name} {value}" for name, value in service.about))
    )
    console.print("/help lists the commands", style="dim")
    lines = _edited_lines(folder) if stdin.isatty() else _plain_lines(stdin, console)
    for line in lines:
        try:
            if not _handle_line(session, line, console):
                break
        except UserInputError as error:
            console.print(f"[red]{escape(str(error))}[/]")
        except KeyboardInterrupt:
            console.print("\n[dim]the answer is interrupted[/]")


def _handle_line(session: ChatSession, line: str, console: Console) -> bool:
    """Answer a line; return whether the chat continues."""
    command = parse_command(line)
    if command is None and session.has_text:
        command = session.path_command(line)
    if len(line) > _MAX_LINE_LENGTH:
        raise UserInputError(f"found {len(line):,} characters, expected at most {_MAX_LINE_LENGTH:,}")
    if command is None and session.has_text:
        print_blocks(console, session.ask(line))
    elif command is None or command.name == "ask":
        if command is None:
            print_blocks(console, session.set(ChatCommand(session.first, line)))
        print_blocks(console, session.ask(""))
    elif command.name in ("quit", "exit"):
        return False
    elif command.name == "help":
        for usage, what in session.help():
            console.print(f"  [bold]{escape(usage)}[/]{' ' * (28 - len(usage))} {escape(what)}")
    elif command.name == "new":
        session.forget()
        console.print("the conversation and the input are forgotten", style="dim")
    elif command.name == "save":
        number = session.save(Path(os.path.expanduser(command.value or "chat.jsonl")))
        answers = "1 answer" if number == 1 else f"{number} answers"
        console.print(f"wrote {answers} to {escape(command.value or 'chat.jsonl')}", style="dim")
    else:
        print_blocks(console, session.set(command))
    return True


def _plain_lines(stdin: TextIO, console: Console) -> Iterator[str]:
    for line in stdin:
        if line.strip():
            console.print(f"[bold]> [/]{escape(line.strip())}")
            yield line.strip()


def _edited_lines(folder: Path) -> Iterator[str]:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    prompt: PromptSession[str] = PromptSession(history=FileHistory(str(folder / "chat_history")))
    while True:
        try:
            line = prompt.prompt("> ").strip()
        except (EOFError, KeyboardInterrupt):
            return
        if line:
            yield line
