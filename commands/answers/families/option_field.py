"""Parses the options of a choice question from a field of the input."""

from commands.answers.answer_service import InputField

OPTIONS = InputField("options", "text", "Options", "Of a choice question, one per line or between semicolons; or none.")


def read_options(text: str) -> list[str]:
    """Return the options of a choice question; none for an open question."""
    parts = text.splitlines() if "\n" in text.strip() else text.split(";")
    return [part.strip() for part in parts if part.strip()]
