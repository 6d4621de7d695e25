"""Tests the page of one run and of several runs in a real browser."""

import json

import numpy as np
import pytest

from engine.telemetry.log_events import EVENTS
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, UserRanks, encode
from tests.commands.report.recorded import Recorded, killed_and_resumed
from tests.commands.report.shown_page import TICKS, VALUES, point_at, settle, texts
from tests.support.outputs import browser
from tests.support.outputs.report_page import ATTACK

pytestmark = browser.with_browser


def test_skipped_records_are_listed_at_the_top(show, tmp_path):
    run = killed_and_resumed(tmp_path / "sasrec")
    page = show(run.folder)
    assert texts(page, ".notice") == []
    (run.folder / "environment.json").write_text("[1]")
    for number in range(2, 8):
        (run.folder / f"config-{number}.yaml").write_text("- a")
    with (run.folder / "metrics.jsonl").open("a") as file:
        file.write('{"time": "no time", "step": 3, "train/loss": 1}\n')
    page = show(run.folder)
    assert page.run("document.querySelector('.head').nextElementSibling.className") == "notice"
    items = texts(page, ".notice li")
    assert len(items) == 8
    assert texts(page, ".notice summary") == ["3 more"]
    assert items[0] == f"{run.folder}/config-2.yaml: found a list, expected the settings of a run, KEY: VALUE; skipped"
    assert (
        items[6]
        == f"{run.folder}/environment.json: found a list, expected the environment of a run, an object; skipped"
    )
    assert items[7].startswith(f"{run.folder}/metrics.jsonl, line ")


def test_the_page_of_a_run_has_all_sections_from_head_to_foot(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "sasrec").folder)
    assert page.run("document.title") == "sasrec – run report"
    assert texts(page, "section > h2") == [
        "Time line",
        "Results",
        "Cost",
        "Curves",
        "Examples",
        "Events",
        "Settings",
        "Environment",
    ]
    tiles = dict(zip(texts(page, ".tile dt"), texts(page, ".tile strong"), strict=True))
    assert tiles["best val/ndcg@10"] == "0.6100"
    assert tiles["steps"] == "400"
    assert tiles["restarts"] == "1", "a bad step, a straggler, and a warning"
    assert tiles["faults and warnings"] == "3", "a bad step, a straggler, and a warning"
    assert "20 steps done again" in texts(page, ".tile small")
    assert tiles["training time"] == "7 min 1 s", "without the break"
    page.run("[...document.querySelectorAll('.tile strong')].forEach((one) => (one.textContent = '59 min 59 s'))")
    assert page.run("[...document.querySelectorAll('.tile')].every((one) => one.scrollWidth <= one.clientWidth)")
    written = page.run("bracketed([-0.0023, -0.0047, -0.000333], 'hr@10', true).textContent")
    assert written == "-0.0023 [-0.0047, -0.0003]", "equal decimals"
    assert texts(page, "h1 + .state") == ["ended"]
    cost = dict(zip(texts(page, "#cost thead th"), texts(page, "#cost tbody td"), strict=True))
    assert cost == {"devices": "2 × 1 threads", "training time": "7 min 1 s", "core hours": "0.23 h"}
    first = texts(page, "#results tbody tr:first-child > *")
    assert first == ["ndcg@10", "0.6100", "0.6100"], "validation at the best step, and the test, which had no baseline"
    assert page.run("document.querySelectorAll('.attempt').length") == 2
    assert page.run("document.querySelectorAll('.glyph.fault').length") == 3
    assert page.run("document.querySelectorAll('.glyph.checkpoint').length") == 3
    assert page.run("document.querySelectorAll('.again').length") == 1
    page.screenshot(tmp_path / "page.png")
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_every_event_is_on_the_page(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    names = page.run("[...FAULTS, ...RESTARTS, ...Object.keys(EVENT_NAMES)].filter(Boolean)")
    assert set(names) == set(EVENTS)


def test_pointing_shows_the_values_of_all_charts(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    assert page.run(VALUES.format(title="ndcg@10")) == ["0.5100"], "the newest"
    point_at(page, 100)
    assert page.run(VALUES.format(title="ndcg@10")) == ["0.2100"]
    assert page.run(VALUES.format(title="loss")) == ["1.724", "1.824"], "training and validation at step 100"
    assert set(texts(page, ".where")) == {"step 100"}
    point_at(page, 200)
    assert "gradients not finite at step 200" in texts(page, ".told")[0]
    page.run("document.querySelector('svg.plot').dispatchEvent(new KeyboardEvent('keydown', {key: 'ArrowRight'}))")
    settle(page)
    assert set(texts(page, ".where")) == {"step 210"}
    page.run("document.querySelector('svg.plot').dispatchEvent(new PointerEvent('pointerleave'))")
    settle(page)
    assert page.run(VALUES.format(title="ndcg@10")) == ["0.5100"]


def test_a_part_is_looked_at_by_drawing_over_it(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    x, y = page.run(
        "(() => { const plot = document.querySelector('svg.plot'); plot.scrollIntoView({block: 'center',"
        "behavior: 'instant'}); const box = plot.getBoundingClientRect();"
        "return [box.x + ROOM.left, box.y + 50]; })()"
    )
    width = page.run("document.querySelector('svg.plot').clientWidth - ROOM.left - ROOM.right")
    page.mouse("mouseMoved", x + width / 4, y)
    settle(page)
    assert set(texts(page, ".where")) == {"step 100"}
    page.mouse("mousePressed", x + width / 4, y)
    page.mouse("mouseMoved", x + width / 2, y)
    page.mouse("mouseReleased", x + width / 2, y)
    settle(page)
    assert page.run("[view.from, view.to]") == pytest.approx([100, 200], abs=3)
    assert {"100", "150", "200"} >= {tick for tick in page.run(TICKS) if tick in ("50", "100", "150", "200", "300")}


def test_axis_zoom_scale_and_smoothing_change_the_chart(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    assert {"0", "100", "200", "300"} <= set(page.run(TICKS))
    flat = page.run("ticks(...yRange([{x: [1, 2], y: [0.02, 0.02 + 1e-17]}], 0, 9, false, []), 4)")
    assert flat[0] == 0, "what does not change is a level line, not noise"
    assert len(flat) >= 3, "what does not change is a level line, not noise"
    page.run("[...document.querySelectorAll('.choices button')].find((one) => one.textContent === 'Time').click()")
    settle(page)
    assert "5:00" in page.run(TICKS), "minutes since the run began"
    loss = "document.querySelector('figure.chart path.line').getAttribute('d')"
    assert page.run(loss).count("M") == 2, "a gap between the starts"
    page.run("[...document.querySelectorAll('.choices button')].find((one) => one.textContent === 'Steps').click()")
    page.run("zoom(100, 150)")
    settle(page)
    assert {"100", "120", "140"} <= set(page.run(TICKS))
    assert "200" not in page.run(TICKS)
    page.run("document.querySelector('[name=whole]').click()")
    settle(page)
    assert "300" in page.run(TICKS)

    y = "document.querySelector('figure.chart path.line').getAttribute('d')"
    linear = page.run(y)
    page.run("document.querySelector('[name=log]').click()")
    settle(page)
    assert page.run(y) != linear
    page.run("document.querySelector('[name=log]').click()")
    page.run(
        "(() => { const one = document.querySelector('[name=smoothing]'); one.value = 0.9;"
        "one.dispatchEvent(new Event('input')); })()"
    )
    settle(page)
    assert page.run("document.querySelectorAll('figure.chart path.raw').length") > 0
    drawn = "document.querySelector('figure.chart path.line{}').getAttribute('d')"
    assert page.run(drawn.format(".raw")) != page.run(drawn.format(":not(.raw)"))
    assert page.run("smoothed([1, 1, null, 1], 0.9)") == pytest.approx([1, 1, None, 1]), "no bias to the beginning"


def test_an_example_shows_its_answers_of_all_evaluations(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    assert texts(page, ".example h3") == ["user 7"]
    assert texts(page, ".said .verdict") == ["✓ right"]
    assert texts(page, ".dots button") == ["✗", "✓", "✓"]
    page.run("document.querySelector('.dots button').click()")
    assert texts(page, ".said .verdict") == ["✗ wrong"]
    assert texts(page, "#examples output") == ["step 100"]
    assert page.run("document.querySelector('.example img').decode().then(() => 'a picture')") == "a picture"
    width = "document.querySelector('.example img').getBoundingClientRect().width"
    small = page.run(width)
    page.run("document.querySelector('.enlarge').click()")
    assert page.run(width) > 3 * small


def test_events_and_settings_are_found(show, tmp_path):
    page = show(killed_and_resumed(tmp_path / "a").folder)
    assert len(texts(page, ".events tbody tr")) == 6, "starts, end and faults"
    page.run(
        "(() => { const one = document.querySelector('[name=event]'); one.value = 'checkpoint_saved';"
        "one.dispatchEvent(new Event('input')); })()"
    )
    assert len(texts(page, ".events tbody tr")) == 3
    page.run(
        "(() => { const one = document.querySelector('[name=setting]'); one.value = 'Dropout';"
        "one.dispatchEvent(new Event('input')); })()"
    )
    displayed = page.run(
        "[...document.querySelectorAll('details[open] tr:not([hidden])')].map((one) => one.textContent)"
    )
    assert displayed == ["model.init_args.dropout0.1"]


def test_markup_in_files_is_shown_as_text(show, tmp_path):
    run = killed_and_resumed(tmp_path / "a")
    run.log("straggler", 5, 5, ATTACK, "warning", why=ATTACK)
    run.example(400, ATTACK, None)
    run.metrics(405, **{ATTACK: 1.0, "val/" + ATTACK: 2.0})
    (run.folder / "config.yaml").write_text(json.dumps({ATTACK: ATTACK}))
    (run.folder / "environment.json").write_text(json.dumps({"device": ATTACK, ATTACK: ATTACK}))
    page = show(run.folder)
    assert page.run("document.title") == "a – run report"
    assert page.run("document.querySelectorAll('main img[src=x], main script').length") == 0
    assert ATTACK in texts(page, ".value")[0]
    assert any(ATTACK in text for text in texts(page, ".message"))


@pytest.mark.parametrize("dark", [False, True])
def test_a_narrow_window_has_no_sideways_scrolling(show, tmp_path, dark):
    names = ("a-rather-long-name-of-a-run-1", "b")
    folders = [killed_and_resumed(tmp_path / name, seed).folder for seed, name in enumerate(names)]
    for page in (show(folders[0]), show(*folders)):
        page.resize(420, 900, dark)
        settle(page)
        assert page.run("document.documentElement.scrollWidth") == 420
        assert page.run("document.querySelector('svg.plot').getBoundingClientRect().width") > 300
        seen = page.run("getComputedStyle(document.body).backgroundColor")
        assert (seen == "rgb(255, 255, 255)") != dark


def test_the_page_opens_for_runs_with_next_to_nothing(show, tmp_path):
    """Runs that only began, that have no usable number, and that were killed."""
    begun, useless, killed = (Recorded(tmp_path / name) for name in ("begun", "useless", "killed"))
    for step in range(3):
        useless.metrics(step, train__loss=float("nan"), **{"val/a": float("inf")})
    killed.log("run_started", 0, 0)
    killed.log(None, 7, 7, "step 7")
    for folders in ([begun.folder], [useless.folder], [killed.folder], [begun.folder, useless.folder, killed.folder]):
        page = show(*folders)
        assert len(texts(page, "section > h2")) >= 3
    page = show(killed.folder)
    assert texts(page, "h1 + .state") == ["no end recorded"]
    assert texts(page, "#curves .none") == ["No metrics have been logged yet."]


@pytest.mark.slow
def test_metrics_by_group_are_a_table_of_the_results(show, tmp_path):
    run = killed_and_resumed(tmp_path / "a")
    header = RankHeader("test", "", 400, 9, 2)
    columns = [np.array(column) for column in ([3, 4], [1, 10], [1, 60], [60, 60])]
    (run.folder / "ranks-test.npz").write_bytes(encode(UserRanks(header, ["x", "y"], ["i", "j"], *columns)))
    run.metrics(400, 700, test__ndcg_at_10=0.5)
    page = show(run.folder)
    rows = texts(page, "#results h3 + div tbody th")
    assert rows[0] == "all users"
    assert rows[-1] == "tail targets: 2 or fewer"
    assert texts(page, "#results h3 + div tbody tr:first-child td")[:2] == ["2", "0.5000 [0.0000, 1.0000]"]
