"""Has a table of events with years between them, options to train on it, and reads recommendations of it."""

import numpy as np

USERS, ITEMS, EVENTS = 40, 25, 9
YEAR = 365 * 86_400
OPTIONS = [
    "--data.init_args.dataset=files",
    "--data.init_args.root=events.csv",
    "--data.init_args.min_item_interactions=1",
    "--data.init_args.max_length=6",
    "--data.init_args.batch_size=8",
    "--model.init_args.hidden_size=8",
    "--model.init_args.num_blocks=1",
    "--model.init_args.top_k=4",
    "--trainer.max_epochs=2",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]


def history(user):
    """The last gap is the smallest, and years lie between the first events."""
    items = [f"sku-{(7 * user + 3 * event * event) % ITEMS}" for event in range(EVENTS)]
    times = 1_000_000_000 + 1000 * user + np.cumsum([0, 3 * YEAR, 900, 400, YEAR, 500, 600, 300, 7 + user % 5])
    return {"user": f"u{user}", "items": items, "times": times.tolist()}


HISTORIES = [history(user) for user in range(USERS)]


def write_table(folder):
    rows = [
        f"{history['user']},{item},{time}"
        for history in HISTORIES
        for item, time in zip(history["items"], history["times"], strict=True)
    ]
    (folder / "events.csv").write_text("\n".join(["user,item,timestamp", *rows]) + "\n")


def answers(rows):
    """Return (item, score) of each recommendation of each prediction."""
    return [
        [(recommendation["item"], recommendation["score"]) for recommendation in row["recommendations"]] for row in rows
    ]
