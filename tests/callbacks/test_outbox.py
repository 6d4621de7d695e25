import threading

from callbacks.outbox import Outbox


def test_in_order_and_together_what_has_gathered():
    sent, first, go = [], threading.Event(), threading.Event()

    def send(letters):
        sent.append(letters)
        first.set()
        assert go.wait(30)

    outbox = Outbox(send, failed=lambda error: None)
    outbox.put(0)
    assert first.wait(30)
    for letter in range(1, 5):
        outbox.put(letter)
    go.set()
    assert outbox.close(30)
    assert sent == [[0], [1, 2, 3, 4]]


def test_the_first_error_ends_it_and_is_told_once():
    errors, tried = [], []

    def send(letters):
        tried.append(letters)
        raise OSError("no route to host")

    outbox = Outbox(send, errors.append)
    outbox.put("a")
    assert outbox.close(30)
    outbox.put("b")
    assert outbox.close(30)
    assert tried == [["a"]] and [str(error) for error in errors] == ["no route to host"]


def test_who_closes_it_does_not_wait_for_ever():
    answers = threading.Event()
    outbox = Outbox(lambda letters: answers.wait(30), failed=lambda error: None)
    outbox.put("a")
    assert not outbox.close(0.01)
    answers.set()
    assert outbox.close(30)
