// The ablation report: accuracies by evidence source, one row per ablation.

// Color of a verdict; null means inconclusive.
const CLASSES = {true: "good", false: "bad", null: "faint"}, SIGNS = {true: "✓ ", false: "✗ ", null: ""};

function share(cell, chance) {
  if (!cell.figure) return element("span", {class: "none"}, "–");
  const {value, low, high, questions} = cell.figure, found = cell.verdict;
  const drawing = shape("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"},
    shape("rect", {class: "track", width: 100, height: 8}), shape("rect", {class: "part", width: 100 * value, height: 8}),
    shape("line", {class: "interval", x1: 100 * low, x2: 100 * high, y1: 4, y2: 4}),
    shape("line", {class: "chance", x1: 100 * chance, x2: 100 * chance, y1: 0, y2: 8}));
  return element("div", {class: "share"},
    element("span", {title: `95 % interval ${percent(low)} to ${percent(high)}, of ${questions} questions`}, percent(value)), drawing,
    element("span", {class: "questions"}, `${(100 * low).toFixed(0)}–${(100 * high).toFixed(0)} %, of ${questions}`),
    ...(found ? [element("span", {class: CLASSES[found.right]}, SIGNS[found.right] + found.says)] : []));
}

about("Ablation report");
page.append(element("h2", {}, "Accuracy by evidence source"),
  element("p", {class: "note"}, "A model that reads what it is asked about loses the questions whose evidence is taken away, down to chance, " +
    "and keeps the others. The line in a bar is the 95 % interval, the tick is chance: dice, or the same model without a document, whichever is more."),
  table(null, [{name: ""}, ...content.sources.map((name) => ({name})), {name: "verdict"}],
    content.rows.map((row) => [row.title, ...row.cells.map((cell, index) => share(cell, content.chance[index])),
      element("span", {class: row.verdict === "as expected" ? "good" : row.verdict.startsWith("not") ? "bad" : "faint"}, row.verdict)])));
if (content.others.length) page.append(element("h2", {}, "Not compared"),
  element("p", {class: "note"}, "Tests of this run whose checkpoint, questions or settings are others:"),
  element("ul", {}, ...content.others.map((other) => element("li", {}, `${other.title}: ${other.differs.join(", ")}`))));
