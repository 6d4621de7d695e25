// One chart: lines over the axis that all charts share. Pointing at one shows the values of all at that step or time.

const HEIGHT = 168, ROOM = {left: 46, right: 10, top: 8, bottom: 20};

// Exponential mean without a bias to the beginning.
function smoothed(values, weight) {
  if (!weight) return values;
  let sum = 0, total = 0;
  return values.map((value) => {
    if (value === null) return null;
    sum = weight * sum + (1 - weight) * value;
    total = weight * total + (1 - weight);
    return sum / total;
  });
}

// The index of the last x that is not beyond a value; -1 if all are.
function before(xs, value) {
  let low = 0, high = xs.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

function nearest(line, value) {
  const found = before(line.x, value);
  if (found < 0) return line.x.length ? 0 : null;
  if (found + 1 < line.x.length && line.x[found + 1] - value < value - line.x[found]) return found + 1;
  return found;
}

function yRange(lines, from, to, log, levels) {
  let low = Infinity, high = -Infinity;
  for (const line of lines) {
    for (let i = 0; i < line.x.length; i++) {
      if (line.x[i] < from || line.x[i] > to) continue;
      const ends = line.low && line.band !== false ? [line.low[i], line.high[i]] : [];
      for (const value of [line.y[i], ...ends]) {
        if (value === null || value === undefined || log && value <= 0) continue;
        low = Math.min(low, value);
        high = Math.max(high, value);
      }
    }
  }
  for (const level of levels) if (!log || level.value > 0) [low, high] = [Math.min(low, level.value), Math.max(high, level.value)];
  if (low > high) return [0, 1];
  if (high - low < 1e-9 * Math.max(Math.abs(low), Math.abs(high))) low = high; // the mean of equal numbers is a little off
  if (log) return low === high ? [low / 2, high * 2] : [low / 1.1, high * 1.1];
  if (low === high) return low === 0 ? [0, 1] : low > 0 ? [0, 1.6 * high] : [1.6 * low, 0];
  const room = 0.06 * (high - low);
  return [low >= 0 && low < 0.3 * high ? 0 : low - room, high + room];
}

// A curve has a gap where a value is missing, and over the time where the run stood still between two starts.
function path(line, xAt, yAt, values = line.y) {
  const breaks = line.breaks || [];
  let text = "", pen = "M";
  for (let i = 0; i < line.x.length; i++) {
    if (breaks.some((one) => i && line.x[i - 1] < one && one <= line.x[i])) pen = "M";
    const y = values[i] === null ? null : yAt(values[i]);
    if (y === null) pen = "M";
    else {
      text += `${pen}${xAt(line.x[i]).toFixed(1)} ${y.toFixed(1)}`;
      pen = "L";
    }
  }
  return text;
}

function band(line, xAt, yAt) {
  const good = line.x.map((_, i) => i).filter((i) => line.low[i] !== null && line.high[i] !== null && yAt(line.low[i]) !== null);
  if (good.length < 2) return "";
  const edge = (i, values) => `${xAt(line.x[i]).toFixed(1)} ${yAt(values[i]).toFixed(1)}`;
  return `M${good.map((i) => edge(i, line.high)).join("L")}L${good.reverse().map((i) => edge(i, line.low)).join("L")}Z`;
}

// chart: {name, title, unit, lines: () => [{label, color, x, y, low, high, raw, dots, faint, run}], levels: [{label, value}], canLog}
function chartCard(chart) {
  const svg = shape("svg", {class: "plot", role: "img", tabindex: 0}), legend = element("ul", {class: "lines"});
  const where = element("span", {class: "where"});
  const card = element("figure", {class: "chart"}, element("figcaption", {},
    element("span", {class: "title"}, chart.title), where), legend, svg);
  const state = {lines: [], xAt: null, from: 0, to: 1, width: 0};
  const point = () => drawCursor(chart, state, svg, legend, where);

  listen(svg, state);
  drawn.all.push(() => {
    const width = svg.clientWidth || card.clientWidth;
    if (!width) return;
    Object.assign(state, scales(chart, width));
    drawPlot(chart, state, svg);
    point();
  });
  drawn.cursor.push(point);
  return card;
}

// What a chart draws in a width, and where: the lines, the ends of both axes, and the functions from values to pixels.
function scales(chart, width) {
  const [from, to] = shownPart(), log = view.log && chart.canLog, lines = chart.lines(), levels = chart.levels || [];
  const [low, high] = yRange(lines, from, to, log, levels), right = width - ROOM.right, bottom = HEIGHT - ROOM.bottom;
  const scale = log ? Math.log10 : (value) => value;
  const xAt = (x) => ROOM.left + (x - from) / (to - from) * (right - ROOM.left);
  const yAt = (y) => log && y <= 0 ? null : bottom - (scale(y) - scale(low)) / (scale(high) - scale(low)) * (bottom - ROOM.top);
  return {lines, levels, log, from, to, low, high, width, right, bottom, xAt, yAt};
}

function drawPlot(chart, state, svg) {
  const {lines, width, right, bottom} = state, clip = `clip-${chart.id}`;
  svg.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
  svg.setAttribute("aria-label", summary(chart, lines));
  const inside = shape("g", {"clip-path": `url(#${clip})`}, ...markShapes(state),
    ...lines.flatMap((line) => bandShapes(line, state)), ...lines.flatMap((line) => lineShapes(line, state)),
    ...bestShapes(chart, state));
  svg.replaceChildren(
    shape("clipPath", {id: clip}, shape("rect", {x: ROOM.left - 3, y: 0, width: right - ROOM.left + 10, height: bottom + 3})),
    ...axisShapes(chart, state), inside, ...levelNames(state), shape("g", {class: "cursor"}));
}

function axisShapes(chart, {log, low, high, from, to, right, bottom, xAt, yAt}) {
  const rows = (log ? logTicks(low, high) : ticks(low, high, 4)).flatMap((tick) => [
    shape("line", {class: "grid", x1: ROOM.left, x2: right, y1: yAt(tick), y2: yAt(tick)}),
    shape("text", {class: "tick", x: ROOM.left - 6, y: yAt(tick) + 4, "text-anchor": "end"}, tickText(tick, chart.name))]);
  const columns = xTicks(from, to, right - ROOM.left).map((tick) => shape("text", {class: "tick", x: xAt(tick), y: HEIGHT - 5,
    "text-anchor": xAt(tick) > right - 16 ? "end" : "middle"}, axisLabel(tick, to - from)));
  return [...rows, ...columns, shape("line", {class: "axis", x1: ROOM.left, x2: right, y1: bottom, y2: bottom})];
}

// Restarts, faults and levels, which lie behind the lines.
function markShapes({levels, right, bottom, xAt, yAt}) {
  return [
    ...marks().map((mark) => shape("line", {class: mark.kind, x1: xAt(mark.x), x2: xAt(mark.x), y1: ROOM.top, y2: bottom})),
    ...levels.filter((level) => yAt(level.value) !== null).map((level) =>
      shape("line", {class: "level", x1: ROOM.left, x2: right, y1: yAt(level.value), y2: yAt(level.value)}))];
}

function bandShapes(line, {xAt, yAt}) {
  return line.low && line.band !== false ? [shape("path", {class: `band ${line.color}`, d: band(line, xAt, yAt)})] : [];
}

function lineShapes(line, {xAt, yAt}) {
  const shapes = line.raw ? [shape("path", {class: `line raw ${line.color}`, d: path(line, xAt, yAt, line.raw)})] : [];
  shapes.push(shape("path", {class: `line ${line.color}${line.faint ? " faint-line" : ""}${line.dash ? " dash" : ""}`, d: path(line, xAt, yAt)}));
  if (line.dots && line.x.length <= 60) line.x.forEach((x, i) => {
    if (line.y[i] !== null && yAt(line.y[i]) !== null) shapes.push(shape("circle", {class: `dot ${line.color}`, cx: xAt(x), cy: yAt(line.y[i]), r: line.x.length > 30 ? 1.6 : 2.4}));
  });
  return shapes;
}

function bestShapes(chart, {from, to, xAt, yAt}) {
  const shown = (chart.best ? chart.best() : []).filter((best) => best.x >= from && best.x <= to && yAt(best.y) !== null);
  return shown.map((best) => shape("circle", {class: `best ${best.color}`, cx: xAt(best.x), cy: yAt(best.y), r: 5.5}));
}

// Labels of levels that are close to each other do not lie on each other.
function levelNames({levels, bottom, yAt}) {
  const names = [];
  let beneath = -20;
  for (const level of [...levels].sort((one, other) => other.value - one.value)) if (yAt(level.value) !== null) {
    const y = Math.max(yAt(level.value) - 4, beneath + 12, ROOM.top + 8);
    beneath = y;
    if (y < bottom) names.push(shape("text", {class: "level-name", x: ROOM.left + 4, y}, level.label));
  }
  return names;
}

// The line at which the reader points, and the legend with the values there; without it the last values.
function drawCursor(chart, state, svg, legend, where) {
  if (!state.xAt) return;
  const layer = svg.querySelector("g.cursor"), isPointed = view.cursor !== null && view.cursor >= state.from && view.cursor <= state.to;
  layer.replaceChildren();
  if (isPointed) layer.append(shape("line", {x1: state.xAt(view.cursor), x2: state.xAt(view.cursor), y1: ROOM.top, y2: HEIGHT - ROOM.bottom}));
  where.textContent = isPointed ? positionText(view.cursor) : chart.unit || "";
  legend.replaceChildren(...state.lines.filter((line) => line.label !== null).map((line) => {
    const index = isPointed ? nearest(line, view.cursor) : line.x.length - 1;
    const value = index === null || index < 0 ? null : line.y[index];
    if (isPointed && index !== null && value !== null && state.yAt(value) !== null) {
      layer.append(shape("circle", {class: `pointed ${line.color}`, cx: state.xAt(line.x[index]), cy: state.yAt(value), r: 3.2}));
    }
    return legendEntry(chart, line, value, index);
  }));
}

function legendEntry(chart, line, value, index) {
  const ends = line.spread && value !== null ? [line.low[index], line.high[index]].map((end) => formatNumber(end, chart.name)) : [];
  const spread = ends.length && ends[0] !== ends[1] ? ` (${ends.join(" – ")})` : "";
  return element("li", {}, element("span", {class: `swatch ${line.color}${line.dash ? " dash" : ""}`}), line.label ? element("span", {class: "of"}, line.label) : "",
    element("b", {}, value === null || value === undefined ? "–" : formatNumber(value, chart.name)), spread ? element("span", {class: "spread"}, spread) : "");
}

function summary(chart, lines) {
  const parts = lines.slice(0, 6).filter((line) => line.x.length).map((line) =>
    `${line.label || chart.title} from ${formatNumber(line.y[0], chart.name)} to ${formatNumber(line.y[line.y.length - 1], chart.name)}`);
  return `${chart.title}: ${parts.join("; ")}`;
}

// Restarts and faults, where few enough to be distinct.
function marks() {
  if (!single) return [];
  const found = runs[0].events.filter((one) => RESTARTS.has(one.event) || isFault(one)).map((one) => ({x: at(one), kind: isFault(one) ? "mark-fault" : "mark-restart"}));
  return found.length <= 40 ? found : found.filter((mark) => mark.kind === "mark-restart").slice(0, 40);
}

// Pointing, zooming by drawing over a part, the whole again by a double click; arrow keys move the cursor.
function listen(svg, state) {
  let began = null;
  const value = (event) => {
    const box = svg.getBoundingClientRect(), share = ((event.clientX - box.left) - ROOM.left) / (box.width - ROOM.left - ROOM.right);
    return state.from + Math.min(1, Math.max(0, share)) * (state.to - state.from);
  };
  svg.addEventListener("pointermove", (event) => change({cursor: value(event)}));
  svg.addEventListener("pointerleave", () => {
    began = null;
    change({cursor: null});
  });
  svg.addEventListener("pointerdown", (event) => {
    if (event.pointerType === "mouse" && event.button === 0) began = {x: event.clientX, value: value(event)};
  });
  svg.addEventListener("pointerup", (event) => {
    const drag = began;
    began = null;
    if (drag !== null && Math.abs(event.clientX - drag.x) > 8) zoom(drag.value, value(event));
  });
  svg.addEventListener("dblclick", () => change({from: null, to: null}));
  svg.addEventListener("keydown", (event) => {
    const steps = {ArrowLeft: -1, ArrowRight: 1}[event.key];
    if (event.key === "Escape") change({from: null, to: null, cursor: null});
    if (!steps) return;
    event.preventDefault();
    const line = state.lines.find((one) => one.x.length), now = view.cursor === null ? (steps > 0 ? -1 : line.x.length) : nearest(line, view.cursor);
    change({cursor: line.x[Math.min(line.x.length - 1, Math.max(0, now + steps))]});
  });
  svg.addEventListener("blur", () => change({cursor: null}));
}

function zoom(one, other) {
  const [first, last] = whole(), from = Math.max(first, Math.min(one, other)), to = Math.min(last, Math.max(one, other));
  if (to - from > (last - first) / 5000) change({from, to, cursor: null});
}
