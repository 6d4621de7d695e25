"""Writes a folder of small technical documents as PDFs, and questions about them."""

import json
from pathlib import Path
from typing import Any

PARTS = ("pump", "valve", "motor", "filter")
MATERIALS = ("steel", "brass", "copper", "glass")


def write_pdf(path: Path, number: int, pages: int = 2) -> Path:
    """Page 1 states each part's material, page 2 its mass; both depend on `number`."""
    from reportlab.pdfgen.canvas import Canvas

    path.parent.mkdir(parents=True, exist_ok=True)
    canvas = Canvas(str(path), pagesize=(200, 200), invariant=1)
    for page in range(1, pages + 1):
        for line, part in enumerate(PARTS):
            canvas.drawString(10, 170 - 30 * line, fact(number, line) if page == 1 else f"{part} {number + line} kg")
        canvas.showPage()
    canvas.save()
    return path


def cached_files(cache: Path) -> dict[str, bytes]:
    """Return the contents of all files of ingested documents in a cache, by path."""
    files = sorted(path for path in (cache / "documents").rglob("*") if path.is_file())
    return {str(path.relative_to(cache)): path.read_bytes() for path in files}


def fact(number: int, part: int) -> str:
    """Return a fact of a document about a part."""
    return f"{PARTS[part]} {number} is {material(number, part)}"


def material(number: int, part: int) -> str:
    return MATERIALS[(number + part) % len(MATERIALS)]


def questions_about(name: str, number: int, first: int = 0) -> list[dict[str, Any]]:
    """Return a question about each part, as the competition writes them; about the last part an open question."""
    asked = []
    for part in range(len(PARTS)):
        record: dict[str, Any] = {
            "id": first + part,
            "question": f"what is {PARTS[part]} {number} ?",
            "document": name,
            "evidence_pages": [1],
            "evidence_sources": ["text"],
        }
        if part < len(PARTS) - 1:
            record["options"] = [f"{letter}. {text}" for letter, text in zip("ABCD", MATERIALS, strict=True)]
            record["answer"] = "ABCD"[MATERIALS.index(material(number, part))]
        else:
            record["answer"] = material(number, part)
        asked.append(record)
    return asked


def write_questions(path: Path, records: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(json.dumps(record) for record in records) + "\n")
    return path


def write_folder(folder: Path, numbers: range) -> dict[str, str]:
    """Documents and their questions, as settings of a QuestionSource."""
    records: list[dict[str, object]] = []
    for number in numbers:
        name = f"manual-{number}.pdf"
        write_pdf(folder / "documents" / name, number)
        records += questions_about(name, number, len(records))
    write_questions(folder / "questions.jsonl", records)
    return {"questions": str(folder / "questions.jsonl"), "documents": str(folder / "documents")}
