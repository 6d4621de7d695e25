"""Tests the page of a recommender: equal to `predict`, explained, and driven in a real browser."""

import json

import pytest

from commands.answers.answer_service import PickedValue, UserInputError, UserQuestion
from tests.conftest import TINY
from tests.support.demo import demo_server, page_driver
from tests.support.outputs import browser
from tests.support.outputs.jsonl import read_jsonl

TIMED = [
    *TINY,
    "--model.init_args.attention",
    "time_interval",
    "--model.init_args.request_time",
    "true",
    "--best_checkpoint.monitor",
    "val/request_time/ndcg@10",
]

KNOWN = "an item of the data"


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A folder with a run that reads times of events and of requests, and its answers."""
    folder = tmp_path_factory.mktemp("recommender")
    with demo_server.trained(folder, *TIMED, "--trainer.max_epochs", "1") as demo:
        yield folder, demo


def recommended(blocks):
    return [(row[1], row[2]) for row in blocks["recommendations"].rows]


def expected(record):
    return [(actual.get("title", actual["item"]), actual["score"]) for actual in record["recommendations"]]


def predicted(folder, *options):
    from commands.cli.main import main

    main(["predict", "--run_name", "a", *options])
    (path,) = (folder / "runs/a").glob("predictions*.jsonl")
    records = read_jsonl(path)
    path.unlink()
    return records


def test_a_user_of_the_data_has_the_recommendations_of_predict(run, monkeypatch):
    folder, demo = run
    monkeypatch.chdir(folder)
    records = predicted(folder)
    for record in records[:3]:
        blocks = demo_server.answered(demo, UserQuestion(picked={"user": [PickedValue(record["user"])]}))
        assert recommended(blocks) == expected(record)


def test_a_history_has_the_recommendations_of_predict(run, monkeypatch):
    folder, demo = run
    monkeypatch.chdir(folder)
    field = demo.fields[1]
    items = [choice.value for choice in demo.search(field, "")[:3]]
    times = [f"2024-03-0{day}T10:00:00" for day in (1, 2, 5)]
    line = {"items": items, "times": times, "request_time": "2024-03-07"}
    (folder / "people.jsonl").write_text(json.dumps(line) + "\n")
    (record,) = predicted(folder, "--data.init_args.predict_histories", "people.jsonl")
    picked = [PickedValue(item, time) for item, time in zip(items, times, strict=True)]
    question = UserQuestion(texts={"request_time": "2024-03-07"}, picked={"history": picked[::-1]})  # in any order
    blocks = demo_server.answered(demo, question)
    assert recommended(blocks) == expected(record)
    assert [row[1] for row in blocks["history"].rows] == [time.replace("T", " ") for time in times[::-1]]

    # Without the event that matters most, the score of the first recommendation is lower by what the page shows.
    lost, titles = blocks["reasons"].rows[0], {choice.label: choice.value for choice in demo.search(field, "")}
    rest = [item for item in picked if item.value != titles[lost[0]]]
    assert len(rest) == 2
    without = demo_server.answered(demo, UserQuestion(texts={"request_time": "2024-03-07"}, picked={"history": rest}))
    best, score = recommended(blocks)[0]
    assert dict(recommended(without)).get(best, score - lost[2]) == pytest.approx(score - lost[2], abs=2e-4)


def test_the_slider_has_times_after_the_last_event(run):
    _, demo = run
    user = {"user": [PickedValue(str(demo._data.user_ids[0]))]}
    last = demo_server.answered(demo, UserQuestion(picked=user))["history"].rows[0][1].replace(" ", "T")
    shown = demo_server.answered(demo, UserQuestion({"request_time": last}, picked=user))["request time"]
    assert shown.selected == 0
    assert shown.stops[0].value == last
    assert shown.field == "request_time"
    assert shown.stops[0].label == f"{last.replace('T', ' ')} UTC, at the last event"
    values = [stop.value for stop in shown.stops]
    assert values == sorted(values)
    assert len(values) == 17
    other = f"{values[6][:-1]}{(int(values[6][-1]) + 1) % 10}"  # a second that is no stop
    between = demo_server.answered(demo, UserQuestion({"request_time": other}, picked=user))["request time"]
    assert len(between.stops) == 18
    assert between.stops[between.selected].value == other


def test_searches_find_users_and_items_by_any_case(run):
    _, demo = run
    user, history, _ = demo.fields
    assert [choice.value for choice in demo.search(user, "")][0] in demo._data.user_ids
    first = demo.search(history, "")[0]
    assert demo.search(history, first.label.upper())[0] == first
    assert demo.search(history, "zzz") == []
    assert len(demo.search(history, "")) == 20


@pytest.mark.parametrize(
    "question, message",
    [
        (UserQuestion(), "no user and no event"),
        (UserQuestion(picked={"user": [PickedValue("nobody")]}), "no such user"),
        (UserQuestion(picked={"history": [PickedValue("nothing")]}), "no such item"),
        (UserQuestion(picked={"history": [PickedValue(KNOWN)]}), "no time is given"),
        (UserQuestion(picked={"history": [PickedValue(KNOWN, "soon")]}), "found 'soon', expected"),
        (
            UserQuestion({"request_time": "1999-01-01"}, picked={"history": [PickedValue(KNOWN, "2024-01-01")]}),
            "before the last event",
        ),
    ],
)
def test_what_cannot_be_answered_is_a_message(run, question, message):
    demo = run[1]
    known = demo.search(demo.fields[1], "")[0].value
    picked = question.picked.get("history", [])
    history = [item._replace(value=known if item.value == KNOWN else item.value) for item in picked]
    with pytest.raises(UserInputError, match=message):
        demo_server.answered(demo, question._replace(picked={**question.picked, "history": history}))


@pytest.mark.slow
def test_an_export_answers_as_its_checkpoint(run, monkeypatch):
    demo_server.check_export(*run, monkeypatch)


@browser.with_browser
def test_a_visitor_searches_and_two_ask_at_once(run, tmp_path):
    with demo_server.served(run[1]) as address, browser.Browser(tmp_path) as page:
        page.open(address)
        page_driver.ask(page)
        assert "no user and no event" in page.run("document.querySelector('.state.error').innerText")
        page.run("document.querySelector('[data-field=history] input[type=search]').focus()")
        page_driver.wait(page, "document.querySelector('[data-field=history] .found button')")
        page.run("document.querySelector('[data-field=history] .found button').click()")
        page_driver.ask(page)
        assert "no time is given" in page.run("document.querySelector('.state.error').innerText")
        page.run("""(() => {
            const time = document.querySelector('.picked input');
            time.value = '2024-05-01T12:00';
            time.dispatchEvent(new Event('change'));
        })()""")
        page_driver.check_two_visitors(page)
        assert page.run("document.querySelectorAll('[data-key=recommendations] tbody tr').length") == 10
        assert page.run("document.querySelectorAll('[data-key=nearest] tbody tr').length") == 5
        page.run("document.querySelector('.example').click()")
        page_driver.ask(page)
        assert page.run("document.querySelectorAll('[data-key=reasons] tbody tr').length") == 5
        user = {"user": [PickedValue(run[1].examples()[0].values["user"][0]["value"])]}
        later = demo_server.answered(run[1], UserQuestion(picked=user))
        stop = later["request time"].stops[0]
        at_once = recommended(demo_server.answered(run[1], UserQuestion({"request_time": stop.value}, picked=user)))
        assert at_once != recommended(later), "the model reads the time of the request"
        slider = "document.querySelector('.slider input')"
        page.run(f"{slider}.value = 0; {slider}.dispatchEvent(new Event('input'))")
        assert page.run("document.querySelector('.stop').innerText") == stop.label
        best, score = at_once[0]
        row = "document.querySelector('[data-key=recommendations] tbody tr').innerText"
        page_driver.wait(page, f"{row}.includes({json.dumps(best)}) && {row}.includes('{score:.3f}'.slice(0, 4))")
        assert page.run("document.querySelectorAll('.card').length") == 1
        page_driver.check_quality(page, address)
