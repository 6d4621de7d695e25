// One small chart for each setting: its values from left to right, what the runs reached with them from bottom to top.

const SLICE = {width: 300, height: 190, left: 50, right: 12, top: 10, bottom: 34};

// Positions of the values of a setting on an axis from 0 to 1, and its ticks as [position, text].
function axisOf(values, log, gap = 0.2) {
  const numbers = values.map((value) => typeof value === "number" ? value : value === null || value === "" || typeof value === "boolean" ? NaN : Number(value));
  if (numbers.every(Number.isFinite) && new Set(numbers).size > 1) {
    const scale = log ? Math.log10 : (value) => value, low = Math.min(...numbers), high = Math.max(...numbers);
    const at = (value) => (scale(Number(value)) - scale(low)) / (scale(high) - scale(low));
    const middle = log ? Math.sqrt(low * high) : (low + high) / 2, few = [...new Set(numbers)].sort((one, other) => one - other);
    return {at, ticks: apart((few.length <= 4 ? few : [low, middle, high]).map((value) => [at(value), short(value)]), gap)};
  }
  const all = [...new Set(values.map(String))];
  const at = (value) => all.length === 1 ? 0.5 : (all.indexOf(String(value)) + 0.5) / all.length;
  return {at, ticks: all.map((value) => [at(value), value])};
}

// Ticks of which the first and the last stay, and no two are closer than the gap: their texts would lie on each other.
function apart(ticks, gap) {
  const last = ticks[ticks.length - 1], found = [ticks[0]];
  for (const tick of ticks.slice(1, -1)) if (tick[0] - found[found.length - 1][0] >= gap && last[0] - tick[0] >= gap) found.push(tick);
  return [...found, last];
}

function short(value) {
  const size = Math.abs(value);
  return size !== 0 && (size < 1e-3 || size >= 1e5) ? value.toExponential(1).replace("e+", "e") : String(Number(value.toPrecision(3)));
}

function clipped(text, length) {
  return text.length > length ? text.slice(0, length - 1) + "…" : text;
}

// points: [{value, reached, name, color, faint}]; best is drawn with a ring.
function sliceCard(title, points, metric, log, best = null) {
  const {width, height, left, right, top, bottom} = SLICE, x = axisOf(points.map((point) => point.value), log);
  const [low, high] = yRange([{x: points.map(() => 0), y: points.map((point) => point.reached)}], -1, 1, false, []);
  const inner = width - left - right, xAt = (value) => left + 8 + x.at(value) * (inner - 16), yAt = (value) => height - bottom - (value - low) / (high - low) * (height - top - bottom);
  const svg = shape("svg", {class: "slice", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": `${title}: ${points.map((point) => `${point.name} ${point.value}: ${formatNumber(point.reached, metric)}`).slice(0, 12).join("; ")}`});
  for (const tick of ticks(low, high, 4)) svg.append(shape("line", {class: "grid", x1: left, x2: width - right, y1: yAt(tick), y2: yAt(tick)}),
    shape("text", {class: "tick", x: left - 6, y: yAt(tick) + 4, "text-anchor": "end"}, tickText(tick, metric)));
  const room = Math.max(4, Math.floor(inner / x.ticks.length / 6.5));
  for (const [at, text] of x.ticks) svg.append(shape("text", {class: "tick", x: left + 8 + at * (inner - 16), y: height - bottom + 16, "text-anchor": at < 0.1 ? "start" : at > 0.9 ? "end" : "middle"}, clipped(text, room), shape("title", {}, text)));
  svg.append(shape("line", {class: "axis", x1: left, x2: width - right, y1: height - bottom, y2: height - bottom}));
  for (const point of points) {
    const dot = shape("circle", {class: `dot ${point.color}${point.faint ? " faint-dot" : ""}`, cx: xAt(point.value), cy: yAt(point.reached), r: 3.6});
    dot.append(shape("title", {}, `${point.name}: ${formatNumber(point.reached, metric)} at ${point.value}`));
    svg.append(dot);
  }
  if (best) svg.append(shape("circle", {class: "best c1", cx: xAt(best.value), cy: yAt(best.reached), r: 7}));
  return element("figure", {class: "chart"}, element("figcaption", {}, element("span", {class: "title"}, title), element("span", {class: "where"}, metric)), svg);
}

// Settings that differ between the runs, beside what the runs reached: the ablations of an experiment.
function ablations() {
  const metric = runs[0].monitor.name;
  if (single || content.study || !metric || runs.some((run) => run.monitor.name !== metric)) return null;
  const reached = runs.map((run) => run.results.val[metric]), known = runs.map((_, index) => index).filter((index) => typeof reached[index] === "number");
  const rows = content.differences.filter(({key, values}) => key !== "seed_everything" && !MONITORING.test(key) && new Set(known.map((index) => values[index])).size > 1);
  if (known.length < 2 || !rows.length) return null;
  const cards = rows.slice(0, MOST_SLICES).map(({key, values}) => sliceCard(key.replaceAll("init_args.", ""), known.map((index) => ({value: values[index] === null ? "–" : values[index], reached: reached[index],
    name: runs[index].name, color: colorOf(groups.findIndex((group) => group.runs.includes(index)))})), metric, false));
  return section("ablations", "Ablations", element("p", {class: "note"}, `Best ${metric} of each run beside each setting in which the runs differ. Settings that change together have no separate effects.${rows.length > MOST_SLICES ? ` The first ${MOST_SLICES} of ${rows.length} settings.` : ""}`),
    element("div", {class: "charts slices"}, ...cards));
}

const MOST_SLICES = 12;
const MONITORING = /^(prometheus|log|wandb|mlflow|sample_previews|watchdog|trainer\.logger)(\.|$)|^(distributed_debug|trainer\.enable_progress_bar)$/;
