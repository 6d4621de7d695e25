// The prediction report: a table of metrics, then the answers as filtered and paginated cards.
// A family adds the content of a card, the title of its kinds of questions, and a note on its metrics.

const ON_PAGE = 20;
// An answer without errors is right; null errors mean that the reference is unknown.
const right = (errors) => errors !== null && errors.length === 0, failed = (errors) => errors !== null && errors.length > 0;
const wrong = (record) => failed(record.errors);
const RESULTS = {
  all: ["all", () => true],
  right: ["right", (record) => right(record.errors)],
  wrong: ["wrong", wrong],
  better: ["right, and the blind answer is wrong", (record) => right(record.errors) && failed(record.blind_errors)],
  worse: ["wrong, and the blind answer is right", (record) => wrong(record) && record.blind !== null && right(record.blind_errors)],
};

function signed(gain, share) {
  const size = share ? (100 * Math.abs(gain)).toFixed(1) : number(Math.abs(gain), 3);
  return (gain > 0 ? "+" : gain < 0 ? "−" : "") + size;
}

function metricsTable(metrics, kind, ruled = "rules") {
  const rules = metrics.some((metric) => metric.rules !== null);
  const systems = ["model", "blind", "model − blind", ...(rules ? [ruled] : [])];
  const columns = [{name: kind}, {name: "metric"}, ...systems.map((name) => ({name, number: true})), {name: "", bar: true}];
  const show = (metric, value) => metric.percent ? percent(value) : number(value);
  let task = null;
  return table(null, columns, metrics.map((metric) => {
    const both = metric.model !== null && metric.blind !== null, gain = both ? metric.model - metric.blind : null;
    const row = [metric.task === task ? "" : metric.task, metric.name, show(metric, metric.model), show(metric, metric.blind),
      gain === null ? "–" : signed(gain, metric.percent), ...(rules ? [show(metric, metric.rules)] : []),
      metric.percent && metric.model !== null ? bar(metric.model, metric.blind) : ""];
    row.first = metric.task !== task && task !== null;
    task = metric.task;
    return row;
  }));
}

function parts(pieces, kind) {
  return pieces.map(([text, differs]) => differs ? element("mark", {class: kind}, text) : text);
}

function said(text) {
  return text === "" ? [element("span", {class: "none"}, "(nothing)")] : [text];
}

function card(record, drawing, several) {
  const badges = wrong(record) ? record.errors.map((error) => element("span", {class: "badge wrong"}, several ? "wrong: " + error : "wrong"))
    : [element("span", {class: record.errors ? "badge right" : "badge"}, record.errors ? "right" : "not graded")];
  const name = `sample-${record.sample}`;
  const texts = element("dl", {class: "texts"},
    element("dt", {}, "Question"), element("dd", {}, record.question),
    element("dt", {}, "Truth"), element("dd", {}, ...parts(record.truth_parts, "true")),
    element("dt", {}, "Answer"), element("dd", {}, ...(record.answer ? parts(record.answer_parts, "predicted") : said(""))));
  if (record.blind !== null) texts.append(element("dt", {}, "Blind answer" + (failed(record.blind_errors) ? several ? ` (wrong: ${record.blind_errors.join(", ")})` : " (wrong)" : record.blind_errors ? " (right)" : "")),
    element("dd", {class: "blind"}, ...said(record.blind)));
  const outcomes = Object.entries(record.outcomes).flatMap(([what, [reached, possible]], index) => [index ? " · " : "",
    element("span", {class: reached <= possible - 1 ? "missed" : null}, `${what} ${number(reached)} of ${number(possible)}`)]);
  return element("article", {class: "card", id: name, tabindex: -1},
    element("header", {}, element("h3", {}, element("a", {href: "#" + name}, `Sample ${record.sample}`)),
      element("span", {class: "faint"}, [record.task, record.class].filter(Boolean).join(" · ")), ...badges),
    element("div", {class: "wide"}, drawing(record), element("div", {}, texts, element("p", {class: "outcomes"}, ...outcomes))));
}

function choice(label, name, options) {
  const select = element("select", {name}, ...options.map(([value, text]) => element("option", {value}, text)));
  return element("label", {}, label, select);
}

function counted(names) {
  const counts = new Map();
  for (const name of names) counts.set(name, (counts.get(name) || 0) + 1);
  return [...counts].sort().map(([name, count]) => [name, `${name} (${count})`]);
}

// family: {kind: title of a kind of question, note: on the metrics, right: which answers count as right, rules: name of the baseline in the column of the rules, drawing: node of a record, legend: node or null}
function predictionReport(family) {
  const records = content.records, kind = family.kind.toLowerCase();
  const kinds = counted(records.map((record) => record.task));
  const several = new Set(records.flatMap((record) => record.errors || [])).size > 1;
  const texts = records.map((record) => [`sample ${record.sample}`, record.question, record.truth, record.answer, record.blind || ""].join("\n").toLowerCase());
  about("Prediction report");
  page.append(element("h2", {}, "Metrics"),
    element("p", {class: "note"}, family.note), metricsTable(content.metrics, kind, family.rules));

  const form = element("form", {role: "search", "aria-label": "Answers to show"},
    ...(kinds.length > 1 ? [choice(family.kind, "task", [["", `all (${records.length})`], ...kinds])] : []),
    resultChoice(records, Object.keys(RESULTS)),
    ...(several ? [choice("Kind of error", "error", [["", "any or none"], ...counted(records.flatMap((record) => record.errors || []))])] : []),
    searchField("Text in question, truth or answers"));
  page.append(element("h2", {}, "Answers"), element("p", {class: "note"}, family.right));
  browse(records, form, (wanted) => {
    const [, result] = RESULTS[wanted.get("result")], words = wordsOf(wanted.get("text"));
    return (record, i) => (!wanted.get("task") || record.task === wanted.get("task")) && result(record) &&
      (!wanted.get("error") || record.errors.includes(wanted.get("error"))) && words.every((word) => texts[i].includes(word));
  }, (record) => card(record, family.drawing, several), family.legend);
}

function resultChoice(records, results) {
  return choice("Result", "result", results.map((key) => [key, `${RESULTS[key][0]} (${records.filter(RESULTS[key][1]).length})`]));
}

function searchField(label) {
  return element("label", {class: "search"}, label, element("input", {type: "search", name: "text"}));
}

function wordsOf(text) {
  return text.toLowerCase().split(/\s+/).filter(Boolean);
}

// Records as paginated cards. filter: form data -> predicate of (record, index); card: node of a record, with the id sample-N.
function browse(records, form, filter, card, legend) {
  const everything = element("button", {type: "button"}, "Show all");
  form.append(everything);
  const counter = element("p", {role: "status"}), cards = element("div", {class: "cards"});
  const turns = [pageTurn(turnBy), pageTurn(turnBy)];
  page.append(form, element("div", {class: "counter"}, counter, turns[0].box),
    ...(legend ? [legend] : []), cards, element("div", {class: "counter"}, element("span"), turns[1].box));
  let shown = [], at = 0;

  function update() {
    shown = records.filter(filter(new FormData(form)));
    const [good, bad] = [RESULTS.right, RESULTS.wrong].map(([, test]) => shown.filter(test).length);
    counter.textContent = `${shown.length} of ${records.length} answers` + (records.some((record) => record.errors) ? `: ${good} right, ${bad} wrong` : "");
    show(0);
  }

  function showAll() {
    form.reset();
    update();
  }

  function show(number) {
    const pages = Math.max(1, Math.ceil(shown.length / ON_PAGE));
    at = Math.min(pages - 1, Math.max(0, number));
    cards.replaceChildren(...shown.slice(at * ON_PAGE, (at + 1) * ON_PAGE).map(card));
    if (!shown.length) cards.append(element("p", {class: "none"}, "No answer is like this."));
    for (const turn of turns) turn.update(at, pages);
  }

  function turnBy(change) {
    show(at + change);
    if (!cards.firstChild) return;
    cards.firstChild.focus({preventScroll: true});
    cards.firstChild.scrollIntoView();
  }

  // A URL that ends in #sample-7 shows that sample, on whichever page it is.
  function named() {
    const isNamed = (record) => location.hash === `#sample-${record.sample}`;
    if (!records.some(isNamed)) return;
    if (!shown.some(isNamed)) showAll();
    const index = shown.findIndex(isNamed);
    show(Math.floor(index / ON_PAGE));
    const found = document.getElementById(location.hash.slice(1));
    found.classList.add("named");
    found.scrollIntoView();
  }

  form.addEventListener("input", update);
  everything.addEventListener("click", showAll);
  form.addEventListener("submit", (event) => event.preventDefault());
  window.addEventListener("hashchange", named);
  update();
  named();
}

// Buttons that turn the pages of the cards, and the number of the page between them.
function pageTurn(turnBy) {
  const back = element("button", {type: "button"}, "Previous"), on = element("button", {type: "button"}, "Next"), label = element("span");
  back.addEventListener("click", () => turnBy(-1));
  on.addEventListener("click", () => turnBy(1));
  function update(at, pages) {
    back.disabled = at === 0;
    on.disabled = at === pages - 1;
    label.textContent = `page ${at + 1} of ${pages}`;
  }
  return {update, box: element("div", {class: "turn"}, back, label, on)};
}
