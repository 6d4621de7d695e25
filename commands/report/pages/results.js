// What was reached: of one run beside its baselines, of several beside each other, seeds as mean and deviation.

const ROWS = 14;

function valueOf(run, stage, name) {
  const value = run.results[stage][`${stage}/${name}`];
  return value === undefined ? null : value;
}

// 0.6964 ± 0.0021: the mean and the sample standard deviation of the seeds.
function spread(values, name) {
  const known = values.filter((value) => value !== null), mean = known.reduce((sum, value) => sum + value, 0) / known.length;
  if (!known.length) return "–";
  if (known.length === 1) return values.length === 1 ? formatNumber(mean, name) : element("span", {}, formatNumber(mean, name), element("span", {class: "spread"}, ` (1 of ${values.length})`));
  const deviation = Math.sqrt(known.reduce((sum, value) => sum + (value - mean) ** 2, 0) / (known.length - 1));
  return element("span", {title: known.map((value) => formatNumber(value, name)).join(", ")}, formatNumber(mean, name), element("span", {class: "spread"}, ` ± ${deviation.toPrecision(2)}`));
}

function resultNames(stage) {
  const monitor = (runs[0].monitor.name || "").replace(/^val\//, "");
  const names = [...new Set(runs.flatMap((run) => Object.keys(run.results[stage])))].map((name) => name.slice(stage.length + 1));
  const rank = (name) => [name === monitor ? 0 : 1, name.split("/").length];
  return names.sort((one, other) => rank(one).map((value, i) => value - rank(other)[i]).find((difference) => difference) || 0);
}

function folding(head, rows, label) {
  const body = element("tbody", {}, ...rows.slice(0, ROWS)), rest = rows.slice(ROWS);
  const box = element("div", {class: "scroll"}, element("table", {}, element("thead", {}, element("tr", {}, ...head)), body));
  if (!rest.length) return box;
  const more = element("button", {type: "button", class: "plain"}, `Show ${rest.length} more ${label}`);
  more.addEventListener("click", () => {
    body.append(...rest);
    more.remove();
  });
  return element("div", {}, box, more);
}

function head(name, number = true) {
  return element("th", {scope: "col", class: number ? "number" : null}, name);
}

function resultsOfOne(run) {
  const stages = ["val", "test"].filter((stage) => Object.keys(run.results[stage]).length);
  const names = [...new Set(stages.flatMap(resultNames))];
  const last = stages[stages.length - 1], known = Object.keys(run.results.baselines).filter((name) => name.startsWith(`${last}/baseline/`));
  const systems = [...new Set(known.map((name) => name.split("/")[2]))];
  const heads = [head("metric", false), ...stages.map((stage) => head(stage === "val" ? `validation, step ${grouped(run.results.val_step)}` : `test, step ${grouped(run.results.test_step)}`)),
    ...systems.map((system) => head(`${system.replaceAll("_", " ")}${stages.length > 1 ? ` (${last})` : ""}`))];
  const rows = names.map((name) => element("tr", {class: `val/${name}` === run.monitor.name ? "monitored" : null}, element("th", {scope: "row"}, name),
    ...stages.map((stage) => element("td", {class: "number own"}, formatNumber(valueOf(run, stage, name), name))),
    ...systems.map((system) => element("td", {class: "number"}, formatNumber(run.results.baselines[`${last}/baseline/${system}/${name}`], name)))));
  return folding(heads, rows, "metrics");
}

function resultsOfSeveral(stage) {
  const names = resultNames(stage);
  const heads = [head("metric", false), ...groups.map((group, i) => {
    const cell = head("");
    cell.replaceChildren(element("span", {class: `swatch ${colorOf(i)}`}), group.name + (group.runs.length > 1 ? ` (${group.runs.length} seeds)` : ""));
    return cell;
  })];
  const rows = names.map((name) => element("tr", {class: `val/${name}` === runs[0].monitor.name ? "monitored" : null}, element("th", {scope: "row"}, name),
    ...groups.map((group) => element("td", {class: "number own"}, spread(group.runs.map((run) => valueOf(runs[run], stage, name)), name)))));
  return element("div", {}, element("h3", {}, stage === "val" ? "Validation, at each run's best checkpoint" : "Test"), folding(heads, rows, "metrics"));
}

// Metrics by group of users and items, as the console shows them.
function byGroup({title, heads, rows}) {
  return element("div", {}, element("h3", {}, title), folding(heads.map((name, i) => head(name, i > 0)),
    rows.map(([name, ...cells]) => element("tr", {}, element("th", {scope: "row"}, name), ...cells.map((cell) => element("td", {class: "number"}, cell)))), "groups"));
}

function bracketed([value, low, high], name, signed = false) {
  const isTiny = Math.max(...[value, low, high].map(Math.abs)) < 1e-3; // otherwise 3.33e-4 beside 0.0047 is 0.0003
  const text = (number) => isTiny || Math.abs(number) >= 1e-3 ? formatNumber(number, name) : number.toFixed(4);
  const written = (number) => (signed && number > 0 ? "+" : "") + text(number);
  return element("span", {}, written(value), element("span", {class: "spread"}, ` [${written(low)}, ${written(high)}]`));
}

// What the runs reached on the same samples, and how each differs from the first; the samples on which they differ most.
function comparison() {
  const {lines, table, differing} = content.compared, parts = [];
  if (!table) return lines.map((line) => element("p", {class: "note"}, line));
  const name = (index) => [element("span", {class: `swatch ${colorOf(groups.findIndex((group) => group.runs.includes(index)))}`}), runs[index].name];
  const heads = [head("metric", false), ...table.runs.map((index) => {
    const cell = head("");
    cell.replaceChildren(...name(index));
    return cell;
  })];
  const rows = table.rows.map(({metric, values, differences}) => element("tr", {}, element("th", {scope: "row"}, metric), ...values.map((value, i) => {
    const difference = differences[i];
    if (!difference) return element("td", {class: "number own"}, bracketed(value, metric));
    const {interval, p} = difference, kind = p >= 0.05 ? "open" : interval[0] > 0 ? "right" : "wrong";
    return element("td", {class: "number own"}, bracketed(value, metric), element("small", {class: `verdict ${kind} difference`}, bracketed(interval, metric, true), p < 0.001 ? ", p < 0.001" : `, p = ${p.toFixed(3)}`));
  })));
  parts.push(element("h3", {}, table.title), folding(heads, rows, "metrics"), element("p", {class: "note"}, table.note),
    ...lines.filter((line) => !line.includes(" minus ")).map((line) => element("p", {class: "note"}, line)));
  if (differing) {
    const cells = differing.rows.map((row) => element("tr", {}, ...row.map((cell, i) => element(i ? "td" : "th", {class: "said"}, cell))));
    parts.push(element("h3", {}, `Samples on which the runs differ most, ${differing.rows.length} of ${grouped(differing.count)}`), folding(differing.heads.map((text) => head(text, false)), cells, "samples"));
  }
  return parts;
}

function results() {
  const stages = ["val", "test"].filter((stage) => resultNames(stage).length);
  if (!stages.length) return null;
  if (!single) return section("results", "Results", element("div", {class: "stages"}, ...stages.map(resultsOfSeveral)),
    ...comparison(),
    ...(groups.some((group) => group.runs.length > 1) ? [element("p", {class: "note"}, "± is the sample standard deviation over the seeds.")] : []));
  const {name, mode} = runs[0].monitor;
  const note = name ? `Validation metrics are those of the evaluation with the ${mode === "min" ? "least" : "largest"} ${name}.` : "Validation metrics are those of the last evaluation.";
  return section("results", "Results", element("p", {class: "note"}, note), resultsOfOne(runs[0]), ...content.tables.map(byGroup));
}
