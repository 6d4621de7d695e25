"""Checks the order of sides: no side always follows the same other side."""

from benchmarks.order import in_order


def test_the_order_is_turned_round_every_other_turn():
    sides = {"a": 1, "b": 2, "c": 3}
    assert ["".join(in_order(sides, turn)) for turn in range(-1, 4)] == ["cba", "abc", "cba", "abc", "cba"]
    assert in_order(sides.items(), 1)[0] == ("c", 3)
