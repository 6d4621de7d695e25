// Which metrics are drawn together in which chart, and in which order the charts come.

const SECTIONS = [
  ["Loss and quality", (name) => name === "train/loss" || name.startsWith("val/")],
  ["Optimization", (name) => /^train\/(learning_rate|gradient_norm|temperature)/.test(name)],
  ["Throughput and memory", (name) => /_per_second$|^train\/(data_wait|mfu|tflops|real_|slowest_|memory)/.test(name)],
  ["Energy", (name) => /^train\/(power_watts|energy_kwh)$/.test(name)],
  ["Others", () => true],
];
const UNITS = {learning_rate: "", memory_gib: "GiB, peak", power_watts: "W", energy_kwh: "kWh, all starts", data_wait: "of the time", tflops: "TFLOP/s", mfu: "of the peak", gradient_norm: "before clipping",
  samples_per_second: "samples/s", slowest_over_median: "slowest rank / median"};
const FIRST = 9; // charts of a section before the rest is folded away
const TITLES = {learning_rate: "learning rate", gradient_norm: "gradient norm", data_wait: "waiting for data", memory_gib: "memory", power_watts: "power", energy_kwh: "energy",
  mfu: "model FLOPs utilization", tflops: "TFLOP/s", samples_per_second: "samples per second", real_tokens: "tokens that are not padding", real_positions: "positions that are not padding"};
let charts = 0;

function measure(name) {
  return name.slice(name.lastIndexOf("/") + 1);
}

function titled(name) {
  return TITLES[name] || name.replace("gradient_norm/", "gradient norm, ").replaceAll("_", " ");
}

// {key: [metrics]}: loss of training and validation in one chart; of a single run also the parts of a measure.
function gathered() {
  const found = new Map();
  for (const name of new Set(runs.flatMap((run) => Object.keys(run.series)))) {
    const [stage, ...rest] = name.split("/"), last = measure(name);
    let key = name;
    if (name.startsWith("train/gradient_norm")) key = single ? "train/gradient_norm" : name;
    else if (["train/loss", "val/loss"].includes(name)) key = "loss";
    else if (single && stage === "val" && rest.length > 1) key = last === "loss" ? "val/loss by kind" : `val/${last}`;
    found.set(key, [...(found.get(key) || []), name]);
  }
  return found;
}

function linesOf(names) {
  const lines = [];
  const label = (name) => {
    if (names.length === 1) return "";
    const rest = name.replace(/^(train|val)\//, "").split("/");
    if (names.includes("train/loss")) return name.startsWith("train") ? "training" : "validation";
    if (name.startsWith("train/gradient_norm")) return rest.slice(1).join("/") || "all";
    return rest.slice(0, -1).join("/") || "all";
  };
  if (single) {
    names.forEach((name, index) => {
      const line = courseOf(runs[0], name);
      const said = label(name), isPart = !["", "all", "training", "validation"].includes(said);
      if (line) lines.push({...line, label: said, color: colorOf(index), faint: isPart});
    });
    return lines;
  }
  groups.forEach((group, index) => names.forEach((name) => {
    const stage = names.length > 1 ? ` ${label(name)}` : "", dash = names.length > 1 && name.startsWith("train/");
    const members = group.runs.filter((run) => !view.hidden.has(run)).map((run) => courseOf(runs[run], name)).filter(Boolean);
    const look = {label: group.name + stage, color: colorOf(index), dash};
    if (!members.length) return;
    if (members.length === 1) lines.push({...members[0], ...look, band: false});
    else if (view.each) members.forEach((line, member) => lines.push({...line, ...look, label: member ? null : look.label, band: false}));
    else lines.push({...meanOf(members), ...look, spread: true});
  }));
  return lines;
}

function courseOf(run, name) {
  const series = run.series[name];
  if (!series) return null;
  const x = run.points[series.points_index][view.axis], dense = name.startsWith("train/") && x.length > 20 && !name.endsWith("learning_rate");
  const y = dense ? smoothed(series.mean, view.smoothing) : series.mean;
  return {x, y, raw: dense && view.smoothing && single ? series.mean : null, low: series.low, high: series.high, dots: name.startsWith("val/"),
    breaks: view.axis === "time" && name.startsWith("train/") ? run.attempts.slice(1).map((attempt) => attempt.began) : []};
}

// The mean of several runs where all of them have been, and the least and the largest of them.
function meanOf(lines) {
  const start = Math.max(...lines.map((line) => line.x[0])), end = Math.min(...lines.map((line) => line.x[line.x.length - 1]));
  const x = lines[0].x.filter((value) => value >= start && value <= end), columns = lines.map((line) => x.map((value) => between(line, value)));
  const over = (what) => x.map((_, i) => {
    const values = columns.map((column) => column[i]).filter((value) => value !== null);
    return values.length ? what(values) : null;
  });
  return {x, y: over((values) => values.reduce((sum, value) => sum + value, 0) / values.length),
    low: over((values) => Math.min(...values)), high: over((values) => Math.max(...values)), dots: lines[0].dots};
}

function between(line, value) {
  const left = before(line.x, value), right = Math.min(line.x.length - 1, left + 1);
  if (left < 0) return line.y[0];
  if (line.x[left] === value || right === left) return line.y[left];
  if (line.y[left] === null || line.y[right] === null) return null;
  const share = (value - line.x[left]) / (line.x[right] - line.x[left]);
  return line.y[left] + share * (line.y[right] - line.y[left]);
}

function chartOf(key, names) {
  const last = measure(key), main = names[0], chart = {id: ++charts, name: main, title: key === "loss" ? "loss" : key === "val/loss by kind" ? "validation loss by kind" : titled(TITLES[last] || /^(train|val)\//.test(key) ? (single ? last : key.replace(/^(train|val)\//, "")) : key),
    unit: UNITS[last] || "", lines: () => linesOf(names), canLog: /(loss|perplexity|gradient_norm|learning_rate)/.test(key)};
  chart.levels = single ? levelsOf(runs[0], names) : [];
  if (single && names.includes(runs[0].monitor.name)) chart.best = () => bestOf(runs[0]);
  return chart;
}

function levelsOf(run, names) {
  const levels = [];
  if (names[0] === "train/gradient_norm" && Number(run.settings["trainer.gradient_clip_val"]) > 0) {
    levels.push({label: "clipped", value: Number(run.settings["trainer.gradient_clip_val"])});
  }
  if (names.every((name) => name.startsWith("val/")) && !/loss|perplexity/.test(names[0])) {
    for (const [name, value] of Object.entries(run.results.baselines)) {
      const [stage, , system, ...rest] = name.split("/");
      if (value !== null && stage === "val" && names[0] === `val/${rest.join("/")}`) levels.push({label: system.replaceAll("_", " "), value});
    }
  }
  return levels.slice(0, 5);
}

function bestOf(run) {
  const series = run.series[run.monitor.name], step = run.results.val_step;
  if (!series || series.width > 1) return [];
  const index = run.points[series.points_index].step.indexOf(step);
  return index < 0 ? [] : [{x: run.points[series.points_index][view.axis][index], y: series.mean[index], color: "c0"}];
}

function curves() {
  const rest = gathered(), parts = [];
  for (const [title, belongs] of SECTIONS) {
    const keys = [...rest.keys()].filter((key) => belongs(rest.get(key)[0]));
    const monitored = (key) => rest.get(key).includes(runs[0].monitor.name) ? 0 : 1;
    const rank = (key) => [key === "loss" ? 0 : 1, monitored(key), key.split("/").length];
    keys.sort((one, other) => rank(one).map((value, i) => value - rank(other)[i]).find((difference) => difference) || 0);
    const cards = keys.map((key) => chartCard(chartOf(key, rest.get(key))));
    for (const key of keys) rest.delete(key);
    if (!cards.length) continue;
    const folded = cards.slice(FIRST);
    parts.push(element("h3", {}, title), element("div", {class: "charts"}, ...cards.slice(0, FIRST)));
    if (folded.length) {
      const more = element("details", {class: "more"}, element("summary", {}, `${folded.length} more`), element("div", {class: "charts"}, ...folded));
      more.addEventListener("toggle", () => change({}));
      parts.push(more);
    }
  }
  if (!parts.length) parts.push(element("p", {class: "none"}, "No metrics have been logged yet."));
  return section("curves", "Curves", toolbar(), ...parts);
}

function toolbar() {
  const smoothing = element("input", {type: "range", min: 0, max: 0.99, step: 0.01, value: 0, name: "smoothing"});
  smoothing.addEventListener("input", () => change({smoothing: Number(smoothing.value)}));
  const log = element("input", {type: "checkbox", name: "log"});
  log.addEventListener("change", () => change({log: log.checked}));
  const back = element("button", {type: "button", class: "plain", name: "whole"}, "Show all");
  back.addEventListener("click", () => change({from: null, to: null}));
  drawn.all.push(() => back.toggleAttribute("disabled", view.from === null));
  return element("div", {class: "toolbar", role: "toolbar", "aria-label": "Curves"},
    choices("Axis", [["step", "Steps"], ["time", "Time"]], view.axis, (axis) => change({axis})),
    ...(groups.some((group) => group.runs.length > 1) ? [choices("Seeds", [[false, "Mean and spread"], [true, "Each seed"]], false, (each) => change({each}))] : []),
    element("label", {class: "inline"}, "Smoothing", smoothing), element("label", {class: "inline"}, log, "Log scale"), back,
    element("span", {class: "hint"}, "Draw over a part of a curve to look closer."));
}
