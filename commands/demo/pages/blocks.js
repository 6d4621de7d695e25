// Draws the parts of an answer as they come; a part with the key of an earlier one replaces it.

// `runs`: names of runs whose parts stand side by side, in a row for each key.
class Blocks {
  constructor(node, {titles = true, runs = []} = {}) {
    this.parts = new Map();
    this.rows = new Map();
    this.state = element("p", {class: "state", role: "status"});
    this.node = node;
    this.titles = titles;
    this.runs = runs;
    this.answers = []; // of each run
    node.replaceChildren(this.state);
    if (runs.length) this.row("").classList.add("names-of-runs");
  }
  // Expect the answer anew: parts that do not come again are removed at its end.
  again() {
    this.failed = false;
    this.stale = new Set(this.parts.keys());
    this.state.setAttribute("role", "status");
  }
  row(key) {
    if (!this.rows.has(key)) {
      const row = element("div", {class: "runs"}, ...this.runs.map((name) => element("div", {class: "run"}, element("p", {class: "run-name"}, name))));
      this.rows.set(key, row);
      this.node.insertBefore(row, this.state);
    }
    return this.rows.get(key);
  }
  busy(text) {
    this.state.textContent = text + " …";
    this.state.className = "state busy";
  }
  done(text = "") {
    const stale = this.failed ? [] : this.stale || [];
    this.stale = null;
    for (const key of stale) {
      this.parts.get(key).remove();
      this.parts.delete(key);
    }
    for (const [key, row] of this.rows) if (key && !row.querySelector(".block")) {
      row.remove();
      this.rows.delete(key);
    }
    if (this.failed) return;
    this.state.textContent = text;
    this.state.className = "state";
  }
  error(text) {
    this.failed = true;
    this.state.className = "state error";
    this.state.setAttribute("role", "alert");
    this.state.textContent = text;
  }
  add(line) {
    if (line.error) return this.error(line.error);
    if (line.waiting) return this.busy(line.waiting === 1 ? "another question comes first" : line.waiting + " questions come first");
    if (line.kind === "text" && line.is_answer) this.answers[line.run || 0] = line.text;
    const isOfRun = line.run !== undefined, key = isOfRun ? line.run + " " + line.key : line.key, old = this.parts.get(key);
    if (this.stale) this.stale.delete(key);
    if (old && line.kind === "slider") return; // the visitor may be moving it
    const drawn = this.draw(line);
    if (old) old.replaceWith(drawn);
    else if (line.kind === "slider") this.node.prepend(drawn);
    else if (isOfRun) this.row(line.key).children[line.run].append(drawn);
    else this.node.insertBefore(drawn, this.state);
    this.parts.set(key, drawn);
  }
  draw(line) {
    const body = DRAW[line.kind](line);
    const head = line.title && this.titles ? [element("h3", {}, line.title)] : [];
    return element("div", {class: "block " + line.kind, "data-key": line.key}, ...head, body,
      ...(line.note ? [element("p", {class: "note"}, line.note)] : []));
  }
}

function picture(shown, large) {
  const image = element("img", {src: shown.url, alt: shown.text || shown.caption});
  return element("figure", {class: large ? "large" : null}, image, element("figcaption", {}, shown.caption));
}

// Moving it asks again: the page listens for `follow`.
function slider(line) {
  const input = element("input", {type: "range", min: 0, max: line.stops.length - 1, step: 1, value: line.selected, "aria-label": line.title});
  const label = element("output", {class: "stop"});
  const show = () => {
    label.textContent = line.stops[input.value].label;
    input.setAttribute("aria-valuetext", label.textContent);
  };
  input.addEventListener("input", () => {
    show();
    input.dispatchEvent(new CustomEvent("follow", {bubbles: true, detail: {field: line.field, value: line.stops[input.value].value}}));
  });
  show();
  return element("div", {}, input, label);
}

// Numbers of a column have equal decimals: as many as the largest needs for four digits, if they have so many.
function column(values) {
  const numbers = values.filter((value) => typeof value === "number");
  if (!numbers.length || numbers.every(Number.isInteger)) return (value) => typeof value === "number" ? number(value, 12) : value;
  const known = Math.max(...numbers.map((value) => (String(value).split(".")[1] || "").length));
  const largest = Math.max(1e-4, ...numbers.map(Math.abs)), needed = Math.max(0, 3 - Math.floor(Math.log10(largest)));
  const decimals = Math.min(6, known, needed);
  return (value) => typeof value === "number" ? value.toFixed(decimals) : value;
}

function numbersTable(line) {
  const shown = line.columns.map((name, index) => column(line.rows.map((row) => row[index])));
  return table("", line.columns.map((name, index) => ({name, number: line.rows.some((row) => typeof row[index] === "number")})),
    line.rows.map((row) => row.map((cell, index) => shown[index](cell))));
}

const DRAW = {
  slider,
  failure: (line) => element("p", {class: "state error", role: "alert"}, line.text),
  text: (line) => element("p", {class: line.faint ? "said faint" : "said"}, line.text),
  note: (line) => element("p", {class: "note"}, line.text),
  bars: (line) => table("", [{name: ""}, {name: "", bar: true}, {name: "", number: true}],
    line.bars.map((item) => [item.label, bar(item.share), percent(item.share)])),
  table: numbersTable,
  pictures: (line) => element("div", {class: "pictures"}, ...line.pictures.map((shown) => picture(shown, line.large))),
};
