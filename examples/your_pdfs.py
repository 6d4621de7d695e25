"""Bring your own PDFs: train a reader on documents and questions about them, and ask it about new ones.

    python examples/your_pdfs.py

writes 40 one-page PDFs and 160 questions into data/examples/pdfs, ingests them, and trains the small reader of the
quickstart for some seconds, which shows the way but is far too short to learn to read: its accuracy stays near chance.
For answers, give a pretrained model your files, as configs/document_qa/your_documents.yaml does. Takes two minutes on 2
cores. Documents are split by content, so a document of the test is never one of the training.
"""

import json
import random
import subprocess
import sys
import time
from pathlib import Path

from reportlab.pdfgen.canvas import Canvas

TRAIN = Path(__file__).parents[1] / "train.py"
FOLDER = Path("data/examples/pdfs")
PARTS, MATERIALS = ("pump", "valve", "motor", "filter"), ("steel", "brass", "copper", "glass")


def write_documents(folder: Path, number: int = 40) -> None:
    """Write data sheets as PDFs, and a question about each of their parts."""
    chance, lines = random.Random(1), []
    (folder / "files").mkdir(parents=True, exist_ok=True)
    for sheet in range(number):
        canvas = Canvas(str(folder / "files" / f"sheet-{sheet}.pdf"), pagesize=(300, 200), invariant=1)
        canvas.drawString(20, 170, f"Data sheet of plant {sheet}")
        for line, part in enumerate(PARTS):
            material = chance.choice(MATERIALS)
            canvas.drawString(20, 140 - 25 * line, f"The {part} is made of {material}.")
            question = {"id": len(lines), "document": f"sheet-{sheet}.pdf", "question": f"What is the {part} made of?"}
            lines.append({**question, "options": MATERIALS, "answer": material, "evidence_pages": [1]})
        canvas.save()
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n", encoding="utf-8")


def write_config(path: Path) -> None:
    """Write a config that replaces the quickstart's data."""
    files = {"questions": str(FOLDER / "questions.jsonl"), "documents": str(FOLDER / "files")}
    settings = {"train": files, "split": {"validation": 0.1, "test": 0.2}, "root": str(FOLDER / "ingested")}
    data = {"class_path": "DocumentQuestions", "init_args": settings}
    path.write_text(json.dumps({"data": data}, indent=2), encoding="utf-8")  # JSON is YAML, too


def lockstep(*arguments: str) -> None:
    """Run `python train.py ...`."""
    subprocess.run([sys.executable, str(TRAIN), *arguments], check=True)


if __name__ == "__main__":
    write_documents(FOLDER)
    write_config(FOLDER / "data.yaml")
    name = f"your-pdfs-{time.strftime('%m%d-%H%M%S')}"
    configs = ["--config", "configs/document_qa/quickstart.yaml", "--config", str(FOLDER / "data.yaml")]
    lockstep("prepare", *configs)
    # Further options of `fit`, such as --trainer.max_steps 20, follow.
    lockstep("fit", *configs, "--run_name", name, *sys.argv[1:])
    lockstep("test", "--run_name", name)
    print(f"drop {FOLDER / 'files' / 'sheet-0.pdf'} on the page of: python train.py demo --run_name {name}")
