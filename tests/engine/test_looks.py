"""At which steps is looked, from how long they take."""

from engine.looks import Looks


def looked_at(looks, seconds, steps=30):
    found = []
    for step in range(1, steps + 1):
        if looks.due(step):
            looks.looked(step, seconds * step)
            found.append(step)
    return found


def test_every_so_many():
    assert looked_at(Looks(10), 100.0) == [10, 20, 30]
    assert looked_at(Looks(1), 0.0) == list(range(1, 31))


def test_about_every_two_seconds():
    assert looked_at(Looks(None), 0.0) == [1, 2, 12, 22]
    assert looked_at(Looks(None), 0.1) == [1, 2, 12, 22]
    assert looked_at(Looks(None), 0.7) == [1, *range(2, 31, 2)]
    assert looked_at(Looks(None), 60.0) == list(range(1, 31))
