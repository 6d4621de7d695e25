"""The readers that are fuzzed, by name; each module has the seeds, the call and the reference of some formats."""

import importlib

from tests.fuzz.reader import Reader

MODULES = {
    "csv": "recommender.interactions",
    "tsv": "recommender.interactions",
    "ratings": "recommender.interactions",
    "parquet": "recommender.interactions",
    "titles": "recommender.titles",
    "histories": "recommender.histories",
    "item_lists": "recommender.item_lists",
    "item_tables": "recommender.item_tables",
    "item_tables_parquet": "recommender.item_tables",
    "event_tables": "recommender.event_tables",
    "event_tables_parquet": "recommender.event_tables",
    "questions": "questions",
    "timelines": "timelines",
    "chats": "chats",
    "chats_parquet": "chats",
    "shards": "chats",
    "question_tables": "question_tables",
    "series": "temporal.series",
    "series_csv": "temporal.series",
    "series_tables": "temporal.series",
    "predict_timelines": "predict_questions",
    "predict_images": "predict_questions",
    "conversations": "conversations",
    "images": "images",
    "image_folder": "image_folders",
    "pdf": "documents",
    "pages": "documents",
    "checkpoints": "checkpoints",
    "ranks": "recommender.ranks",
    "report": "runs",
    "resume": "runs",
    "export": "runs",
    "config": "configs",
    "command_line": "configs",
}
"""Reader -> module. A worker imports the module of its reader alone."""

PLANTED = "planted"
"""Reader with a fault for each outcome, for the tests of the fuzzer; no campaign includes it."""


def reader(name: str) -> Reader:
    """Return the reader of this name."""
    module = "planted" if name == PLANTED else MODULES[name]
    found: Reader = importlib.import_module(f"tests.fuzz.readers.{module}").READERS[name]()
    return found
