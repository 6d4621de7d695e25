"""A table of interactions with event features, and options to train on it."""

import numpy as np

from tests.conftest import REPOSITORY

USERS, ITEMS, EVENTS, LENGTH = 60, 24, 9, 6
OPTIONS = [
    "--config",
    str(REPOSITORY / "configs/recommender/sasrec.yaml"),
    "--data.init_args.dataset=files",
    "--data.init_args.root=events.csv",
    "--data.init_args.min_item_interactions=1",
    f"--data.init_args.max_length={LENGTH}",
    "--data.init_args.batch_size=16",
    "--model.init_args.hidden_size=16",
    "--model.init_args.num_heads=1",
    "--model.init_args.num_blocks=1",
    "--model.init_args.dropout=0",
    "--model.init_args.learning_rate=0.02",
    "--model.init_args.warmup_steps=1",
    "--model.init_args.schedule=constant",
    "--model.init_args.baselines=false",
    "--trainer.callbacks=null",
    "--trainer.check_val_every_n_epoch=1",
    "--trainer.log_every_n_steps=1",
    "--trainer.enable_progress_bar=false",
    "--trainer.accelerator=cpu",
]
FEATURES = [
    "--data.init_args.event_features.categories",
    "[device]",
    "--data.init_args.event_features.numbers",
    "[stars]",
]


def history(user):
    """The next item is an item of another dozen, by the device, and one of two, by the stars of the event before it."""
    random = np.random.default_rng(user)
    devices, stars = random.choice(["phone", "web"], EVENTS), random.integers(1, 6, EVENTS)
    items = [f"sku-{random.integers(ITEMS)}"]
    for device, star in zip(devices[:-1], stars[:-1], strict=True):
        items.append(f"sku-{12 * (device == 'phone') + 6 * (star > 3) + random.integers(6)}")
    known = [int(star) if index % 4 else None for index, star in enumerate(stars)]
    return {"user": f"u{user}", "items": items, "times": list(range(EVENTS)), "device": list(devices), "stars": known}


HISTORIES = [history(user) for user in range(USERS)]


def write_table(folder):
    rows = ["user,item,timestamp,stars,device"]
    for history in HISTORIES:
        for values in zip(history["items"], history["times"], history["stars"], history["device"], strict=True):
            rows.append(",".join([history["user"], *("" if value is None else str(value) for value in values)]))
    (folder / "events.csv").write_text("\n".join(rows) + "\n")
