"""The page of several runs compares them: the spread of their seeds, and their answers to the same questions."""

from engine.telemetry.energy_file import Joules, write_energy
from engine.telemetry.graded_answers import GradedAnswer, write_graded_answers
from tests.commands.report.recorded import killed_and_resumed
from tests.commands.report.shown_page import VALUES, point_at, settle, texts
from tests.support.outputs import browser
from tests.support.outputs.report_page import ATTACK

pytestmark = browser.with_browser


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
