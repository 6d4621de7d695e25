"""Checks the order of variants: no variant always follows the same other variant."""

from benchmarks.turn_order import turn_order


def test_the_order_is_turned_round_every_other_turn():
    variants = {"a": 1, "b": 2, "c": 3}
    assert ["".join(turn_order(variants, turn)) for turn in range(-1, 4)] == ["cba", "abc", "cba", "abc", "cba"]
    assert turn_order(variants.items(), 1)[0] == ("c", 3)
