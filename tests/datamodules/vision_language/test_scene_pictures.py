"""The picture of a scene shows its objects, and depends on the coordinates of the sample alone."""

import colorsys

import numpy as np
import pytest

from datamodules.multimodal.synthetic_split import Split
from datamodules.vision_language.scenes.render import RGB
from datamodules.vision_language.scenes.scene import World
from datamodules.vision_language.scenes.tasks import SceneSample, SceneTasks, Tasks


@pytest.mark.parametrize("world", [World(), World(3, 6, 5, 5, 48)], ids=["easy", "hard"])
def test_the_picture_shows_the_scene(world: World) -> None:
    tasks = SceneTasks(world, Tasks(caption_share=1.0))
    edge = world.size // world.grid
    for index in range(100):
        sample = tasks.sample(Split.TRAIN, 0, index)
        pixels = np.asarray(tasks.picture(sample))
        assert pixels.shape == (world.size, world.size, 3)
        for cell, thing in enumerate(sample.scene.cells):
            row, column = divmod(cell, world.grid)
            inside = pixels[row * edge : (row + 1) * edge, column * edge : (column + 1) * edge].reshape(-1, 3)
            colored = inside[np.ptp(inside.astype(int), axis=1) > 70]
            assert (len(colored) > 0) == (thing is not None), (index, cell)
            if thing is not None:
                assert _nearest(np.median(colored, axis=0)) == thing.colour, (index, cell)
                assert 0.1 < len(colored) / edge**2 < 0.75


def _nearest(colour: np.ndarray) -> str:
    hues = {name: colorsys.rgb_to_hsv(*rgb)[0] for name, rgb in RGB.items()}
    hue = colorsys.rgb_to_hsv(*colour)[0]
    return min(hues, key=lambda name: abs((hues[name] - hue + 0.5) % 1 - 0.5))


def test_shapes_differ_in_their_pixels() -> None:
    # A square fills its box, a diamond half of it; a ring is open, a triangle is narrow at the top.
    tasks = SceneTasks(World(1, 2, 5, 1, 48), Tasks(caption_share=1.0))
    for index in range(60):
        sample = tasks.sample(Split.TRAIN, 0, index)
        pixels = np.ptp(np.asarray(tasks.picture(sample)).astype(int), axis=2) > 70
        rows, columns = np.nonzero(pixels)
        box = pixels[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]
        middle = box[len(box) // 2, box.shape[1] // 2]
        top, bottom = box[: len(box) // 4].mean(), box[-(len(box) // 4) :].mean()
        found = (
            "ring"
            if not middle
            else "triangle"
            if bottom - top > 0.3
            else "square"
            if box.mean() > 0.9
            else "circle"
            if box.mean() > 0.65
            else "diamond"
        )
        assert found == sample.scene.objects[0].shape


def test_a_sample_depends_on_its_coordinates_alone() -> None:
    def sample(seed: int = 0, split: Split = Split.TRAIN, epoch: int = 0, index: int = 7) -> tuple[SceneSample, bytes]:
        tasks = SceneTasks(World(), Tasks(), seed)
        found = tasks.sample(split, epoch, index)
        return found, tasks.picture(found).tobytes()

    assert sample() == sample()
    others = [sample(seed=1), sample(split=Split.TEST), sample(epoch=1), sample(index=8)]
    assert len({picture for _, picture in (sample(), *others)}) == 5


def test_the_same_scene_never_looks_the_same_twice() -> None:
    tasks = SceneTasks(World(), Tasks())
    sample = tasks.sample(Split.TRAIN, 0, 0)
    assert tasks.picture(sample).tobytes() != tasks.picture(sample._replace(drawn_by=1)).tobytes()
