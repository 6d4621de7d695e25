"""Bring your own pictures: classify image files by the names of their folders.

    python examples/your_pictures.py

writes 600 small pictures into data/examples/pictures/train/CLASS (discs, frames and crosses, in any colour and place),
trains a small Vision Transformer on them with configs/image_classifier/image_folder.yaml, and tests it. Takes a minute
on 2 cores. With folders of yours:

    python train.py fit --config configs/image_classifier/image_folder.yaml --data.init_args.root my_pictures
"""

import random
import subprocess
import sys
import time
from pathlib import Path

from PIL import Image, ImageDraw

TRAIN = Path(__file__).parents[1] / "train.py"
PICTURES = Path("data/examples/pictures")


def draw(shape: str, chance: random.Random) -> Image.Image:
    """Return a picture of a shape, in a random colour, size and place."""
    picture = Image.new("RGB", (32, 32), tuple(chance.randrange(90) for _ in range(3)))
    pen, colour = ImageDraw.Draw(picture), tuple(chance.randrange(150, 256) for _ in range(3))
    size = chance.randint(10, 18)
    left, top = chance.randint(1, 30 - size), chance.randint(1, 30 - size)
    right, bottom = left + size, top + size
    if shape == "disc":
        pen.ellipse((left, top, right, bottom), fill=colour)
    elif shape == "frame":
        pen.rectangle((left, top, right, bottom), outline=colour, width=3)
    else:
        pen.line((left, top, right, bottom), fill=colour, width=3)
        pen.line((left, bottom, right, top), fill=colour, width=3)
    return picture


def write_pictures(folder: Path, number: int = 200) -> None:
    """Write pictures of each class into a folder with its name."""
    chance = random.Random(1)
    for shape in ("disc", "frame", "cross"):
        (folder / "train" / shape).mkdir(parents=True, exist_ok=True)
        for index in range(number):
            draw(shape, chance).save(folder / "train" / shape / f"{index}.png")


def lockstep(*arguments: str) -> None:
    """Run `python train.py ...`."""
    subprocess.run([sys.executable, str(TRAIN), *arguments], check=True)


if __name__ == "__main__":
    write_pictures(PICTURES)
    name = f"your-pictures-{time.strftime('%m%d-%H%M%S')}"
    lockstep(
        "fit", "--config", "configs/image_classifier/image_folder.yaml", "--run_name", name,
        "--data.init_args.root", str(PICTURES), "--data.init_args.image_size", "32",
        "--data.init_args.crop_padding", "2", "--data.init_args.mixup", "0", "--data.init_args.batch_size", "32",
        "--data.init_args.num_workers", "0", "--model.init_args.width", "96", "--model.init_args.depth", "3",
        "--model.init_args.ema_decay", "0.9", "--model.init_args.warmup_steps", "30",
        "--trainer.max_epochs", "15", "--trainer.log_every_n_steps", "10",
        *sys.argv[1:],  # further options of `fit`, such as --trainer.max_steps 20
    )  # fmt: skip
    lockstep("test", "--run_name", name)
    print(f"try it: python train.py demo --run_name {name}")
