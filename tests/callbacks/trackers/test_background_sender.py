"""Tests the thread that sends items to a tracker."""

import threading

from callbacks.trackers.background_sender import BackgroundSender


def test_items_are_sent_in_order_and_batched():
    sent, first, go = [], threading.Event(), threading.Event()

    def send(items):
        sent.append(items)
        first.set()
        assert go.wait(30)

    sender = BackgroundSender(send, on_error=lambda error: None)
    sender.put(0)
    assert first.wait(30)
    for item in range(1, 5):
        sender.put(item)
    go.set()
    assert sender.close(30)
    assert sent == [[0], [1, 2, 3, 4]]


def test_the_first_error_ends_the_thread_and_is_reported_once():
    errors, tried = [], []

    def send(items):
        tried.append(items)
        raise OSError("no route to host")

    sender = BackgroundSender(send, errors.append)
    sender.put("a")
    assert sender.close(30)
    sender.put("b")
    assert sender.close(30)
    assert tried == [["a"]]
    assert [str(error) for error in errors] == ["no route to host"]


def test_close_returns_after_its_timeout():
    answers = threading.Event()
    sender = BackgroundSender(lambda items: answers.wait(30), on_error=lambda error: None)
    sender.put("a")
    assert not sender.close(0.01)
    answers.set()
    assert sender.close(30)
