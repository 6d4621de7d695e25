"""Tests the page of one run and of several runs in a real browser."""

import json

import numpy as np
import pytest

from commands.report.main import main
from commands.report.study_summary import StudySummary, TrialSummary
from commands.sweep.summary import write_summary
from engine.telemetry.energy_file import Joules, write_energy
from engine.telemetry.graded_answers import GradedAnswer, write_graded_answers
from engine.telemetry.log_events import EVENTS
from lightning_modules.recommender.item_ranks.rank_file import RankHeader, UserRanks, encode
from tests.commands.report.recorded import Recorded, killed_and_resumed
from tests.support.outputs import browser
from tests.support.outputs.report_page import ATTACK

pytestmark = browser.with_browser


VALUES = (
    "[...document.querySelectorAll('figure.chart')]"
    ".filter((one) => one.querySelector('.title').textContent === {title!r})"
    ".flatMap((one) => [...one.querySelectorAll('.lines b')].map((value) => value.textContent))"
)
TICKS = "[...document.querySelector('figure.chart').querySelectorAll('text.tick')].map((one) => one.textContent)"


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    with browser.Browser(tmp_path_factory.mktemp("browser"), (1300, 900)) as page:
        yield page


@pytest.fixture
def show(opened, tmp_path, monkeypatch):
    """Write the page of runs and open it from its file; check for no console error and no network request."""
    monkeypatch.chdir(tmp_path)
    opened.complaints.clear()
    opened.requests.clear()

    def open_page(*folders):
        main([str(folder) for folder in folders] + ["--output", str(tmp_path / "page.html")])
        opened.resize(1300, 900)
        opened.open((tmp_path / "page.html").as_uri())
        settle(opened)
        return opened

    yield open_page
    assert opened.complaints == []
    assert [request for request in opened.requests if not request.startswith(("file:", "data:"))] == []


def settle(page):
    page.run("new Promise((go) => requestAnimationFrame(() => requestAnimationFrame(go)))")


def texts(page, selector):
    return page.run(f"[...document.querySelectorAll({selector!r})].map((one) => one.textContent)")


def point_at(page, step):
    page.run(f"change({{cursor: {step}}})")
    settle(page)


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


def test_one_run_from_its_head_to_its_foot(show, tmp_path):
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


def test_the_axis_zoom_scale_and_smoothing(show, tmp_path):
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


def test_seeds_are_one_line_with_their_spread(show, tmp_path):
    folders = [killed_and_resumed(tmp_path / f"sas-{seed}", seed).folder for seed in (1, 3)]
    lines = (folders[1] / "metrics.jsonl").read_text().splitlines(keepends=True)
    (folders[1] / "metrics.jsonl").write_text("".join(line for line in lines if "test/" not in line))
    page = show(*folders, killed_and_resumed(tmp_path / "dropped", 1, 0.5).folder)
    assert texts(page, "h1") == ["3 runs compared"]
    assert texts(page, "#results thead th")[:3] == ["metric", "sas (2 seeds)", "dropped"]
    first = texts(page, "#results tbody tr:first-child > *")
    assert first[:3] == ["ndcg@10", "0.6200 ± 0.014", "0.6100"]
    assert texts(page, ".stages > :nth-child(2) tbody tr:first-child > *")[1] == "0.6100 (1 of 2)", "one was tested"
    charts = "[...document.querySelectorAll('figure.chart')]"
    chart = f"{charts}.find((one) => one.querySelector('.title').textContent === 'ndcg@10')"
    point_at(page, 400)
    assert page.run(VALUES.format(title="ndcg@10")) == ["0.5200", "0.5100"]
    assert page.run(f"{chart}.querySelectorAll('path.band').length") == 1
    assert page.run(f"{chart}.querySelector('.spread').textContent") == " (0.5100 – 0.5300)"
    page.run("[...document.querySelectorAll('.choices button')].find((one) => one.textContent === 'Each seed').click()")
    settle(page)
    assert page.run(f"{chart}.querySelectorAll('path.line').length") == 3
    page.run("document.querySelector('[name=run-2]').click()")
    settle(page)
    assert page.run(f"{chart}.querySelectorAll('path.line').length") == 2, "a run that is not wanted is not drawn"
    rows = page.run(
        "[...document.querySelector('#settings table').querySelectorAll('tbody tr')]"
        ".map((row) => [...row.children].map((one) => one.textContent))"
    )
    assert rows == [["seed_everything", "1", "3", "1"], ["model.init_args.dropout", "0.1", "0.1", "0.5"]]


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


def test_runs_with_next_to_nothing(show, tmp_path):
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


def test_several_runs_are_compared_on_the_same_answers(show, tmp_path):
    folders = []
    for index, name in enumerate("abc"):
        run = killed_and_resumed(tmp_path / name, dropout=0.1 * index)
        answers = [GradedAnswer(sample, ATTACK, "4", "4", float(sample < 30 * index)) for sample in range(60)]
        write_graded_answers(run.folder, "test/accuracy", answers)
        if index:
            write_energy(run.folder, Joules(3600.0, 0.0 if name == "b" else 10800.0))
        folders.append(run.folder)
    page = show(*folders)
    assert {"Results", "Ablations", "Cost"} <= set(texts(page, "section > h2"))
    row = texts(page, "#results > div.scroll tbody tr:first-child td") + texts(page, "#results tr .difference")
    assert row[0] == "0.0000 [0.0000, 0.0000]"
    assert row[2].startswith("1.000 [1.000, 1.000]+1.000")
    assert texts(page, "#results .difference.right")[0].endswith("p < 0.001")
    assert page.run("document.querySelectorAll('#results td.said').length") == 14 * 5, "14 of 20 rows, and a button"
    assert texts(page, "#ablations .title") == ["model.dropout"]
    assert page.run("document.querySelectorAll('#ablations circle.dot').length") == 3
    assert texts(page, "#cost tbody tr:first-child td")[:3] == ["2 × 1 threads", "7 min 1 s", "0.23 h"]
    assert texts(page, "#cost td:nth-child(5)") == ["–", "1 WhCPUs only", "4 WhCPUs 1, GPUs 3"]
    page.resize(420, 900, True)
    settle(page)
    assert page.run("document.documentElement.scrollWidth") == 420


def test_a_study_shows_its_trials(show, tmp_path):
    study = tmp_path / "study"
    parameters = [{"key": "model.init_args.rate", "log": True}, {"key": "model.init_args.kind", "log": False}]
    trials = []
    for number, state in enumerate(("complete", "pruned", "complete", "failed", "running")):
        name, values = f"trial-{number:04}", {"model.init_args.rate": 10.0**-number, "model.init_args.kind": ATTACK}
        value = None if state in ("failed", "running") else 0.5 + 0.1 * number
        trials.append(TrialSummary(number, name, state, value, value and 100, values, "" if value else ATTACK))
        if state != "failed":
            killed_and_resumed(study / name, dropout=0.1 * number)
    summary = StudySummary("val/ndcg@10", "maximize", parameters, trials, f"train {ATTACK}")
    write_summary(summary, study)
    page = show(study)
    assert page.run("document.title") == "study – run report"
    assert texts(page, "h1") == ["study"]
    assert texts(page, "#study .facts span")[0] == "5 trials: 2 complete, 1 pruned, 1 failed, 1 running"
    assert texts(page, "#study .tile strong")[:2] == ["0.7000", "0.01"]
    states = dict(zip(texts(page, ".runs tbody th"), texts(page, ".runs .state"), strict=True))
    assert states["trial-0001"] == "pruned", states
    assert "preempted" not in states.values(), states
    assert texts(page, "#study pre") == [f"train {ATTACK}"]
    assert page.run("document.querySelectorAll('#study .trial').length") == 3
    assert page.run("document.querySelectorAll('#study .trial.dash').length") == 1
    assert page.run("document.querySelectorAll('#study .slice').length") == 2
    assert texts(page, "#study tbody tr:first-child th") == ["trial-0002"]
    page.run("document.querySelector('#study .target').dispatchEvent(new PointerEvent('pointerenter'))")
    assert texts(page, "#study .told")[0].startswith("trial-0000: 0.5000 at step 100 (rate 1, kind </script>")
    wide = page.run("document.querySelector('svg.parallel').clientWidth")
    page.resize(800, 900, True)
    settle(page)
    settle(page)
    assert page.run("document.querySelector('svg.parallel').clientWidth") < wide, "it follows the window"
    page.resize(420, 900, True)
    settle(page)
    assert page.run("document.documentElement.scrollWidth") == 420
    write_summary(summary._replace(trials=trials[:1]), study)
    assert texts(show(study), "h1") == ["study"], "a study with one trial is not the page of a run"


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
