"""The page of a study shows its trials, its best value, and the command of the next trial."""

from commands.report.study_summary import StudySummary, TrialSummary
from commands.sweep.summary import write_summary
from tests.commands.report.recorded import killed_and_resumed
from tests.commands.report.shown_page import settle, texts
from tests.support.outputs import browser
from tests.support.outputs.report_page import ATTACK

pytestmark = browser.with_browser


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
