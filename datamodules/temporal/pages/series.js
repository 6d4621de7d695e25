// Series of a question, each on its own axes: values from the smallest to the largest, steps from the first to the last.

const SERIES_WIDTH = 460, SERIES_HEIGHT = 128, SERIES_LEFT = 56, SERIES_RIGHT = 10, SERIES_TOP = 6, SERIES_BOTTOM = 20;

function roundSteps(low, high, most) {
  const rough = (high - low) / most, power = 10 ** Math.floor(Math.log10(rough));
  const size = power * [1, 2, 5, 10].find((factor) => factor * power >= rough * (1 - 1e-9));
  const first = Math.ceil(low / size - 1e-9), count = Math.floor(high / size + 1e-9) - first + 1;
  return Array.from({length: Math.max(0, count)}, (_, i) => Number(((first + i) * size).toPrecision(6)));
}

// A length of time in the largest unit of which there are two or more.
function duration(seconds) {
  const [size, unit] = [[86400, "d"], [3600, "h"], [60, "min"], [1, "s"]].find(([length]) => Math.abs(seconds) >= 2 * length) || [1, "s"];
  return `${number(seconds / size)} ${unit}`;
}

function seriesTitle(curve) {
  const steps = curve.length === 1 ? "1 step" : `${curve.length} steps`;
  return `${curve.name}${curve.unit ? ", " + curve.unit : ""} (${steps}${curve.step === null ? "" : " of " + duration(curve.step)})`;
}

function seriesChart(curve) {
  const flat = curve.low === curve.high, margin = flat ? Math.abs(curve.low) / 2 || 1 : (curve.high - curve.low) * 0.05;
  const low = curve.low - margin, high = curve.high + margin, last = Math.max(1, curve.length - 1);
  const right = SERIES_WIDTH - SERIES_RIGHT, floor = SERIES_HEIGHT - SERIES_BOTTOM;
  const x = (step) => SERIES_LEFT + (right - SERIES_LEFT) * Math.min(1, Math.max(0, step / last));
  const y = (value) => floor - (floor - SERIES_TOP) * (value - low) / (high - low);
  const measured = curve.values.filter((value) => value !== null);
  const spoken = measured.length ? `${seriesTitle(curve)}: from ${number(measured[0])} to ${number(measured[measured.length - 1])}, least ${number(curve.low)}, most ${number(curve.high)}`
    : `${seriesTitle(curve)}: no measurement`;
  const drawing = shape("svg", {viewBox: `0 0 ${SERIES_WIDTH} ${SERIES_HEIGHT}`, role: "img", "aria-label": spoken},
    shape("rect", {class: "frame", x: SERIES_LEFT, y: SERIES_TOP, width: right - SERIES_LEFT, height: floor - SERIES_TOP}));
  for (const value of roundSteps(low, high, 3)) {
    drawing.append(shape("line", {class: "grid", x1: SERIES_LEFT, x2: right, y1: y(value), y2: y(value)}),
      shape("text", {x: SERIES_LEFT - 5, y: y(value) + 4, "text-anchor": "end"}, number(value)));
  }
  for (const step of roundSteps(0, last, 5).filter(Number.isInteger)) {
    drawing.append(shape("text", {x: x(step), y: floor + 14, "text-anchor": step === 0 ? "start" : step > 0.95 * last ? "end" : "middle"}, number(step)));
  }
  const near = (i) => (curve.steps[i] + curve.steps[Math.min(i + 1, curve.steps.length - 1)]) / 2;
  for (const [start, after] of spans(curve.values, (value) => value === null)) {
    const from = x(start ? near(start - 1) : 0), to = x(after < curve.steps.length ? near(after - 1) : last);
    drawing.append(shape("rect", {class: "gap", x: from, y: SERIES_TOP + 0.5, width: to - from, height: floor - SERIES_TOP - 1}));
  }
  for (const [start, after] of spans(curve.values, (value) => value !== null)) {
    const points = curve.values.slice(start, after).map((value, i) => `${x(curve.steps[start + i]).toFixed(1)},${y(value).toFixed(1)}`);
    if (points.length > 1) drawing.append(shape("polyline", {class: "curve", points: points.join(" ")}));
    else drawing.append(shape("circle", {class: "alone", cx: x(curve.steps[start]), cy: y(curve.values[start]), r: 2}));
  }
  return element("figure", {class: "asked"}, element("figcaption", {}, seriesTitle(curve)), drawing);
}

function optionList(record) {
  if (!record.options.length) return [];
  const mark = (option) => option === record.truth ? "true" : option === record.answer ? "predicted" : null;
  return [element("ul", {class: "options", "aria-label": "options"}, ...record.options.map((option) => element("li", {class: mark(option)}, option)))];
}

function seriesOf(record) {
  return element("div", {}, element("div", {class: "series"}, ...record.curves.map(seriesChart)), ...optionList(record));
}
