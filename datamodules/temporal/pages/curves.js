// Curves with the queried, true and predicted points.

// Sizes of a chart; PAD keeps points at 0 and at the capacity off the frame.
const WIDTH = 340, HEIGHT = 124, LEFT = 34, RIGHT = 42, TOP = 3, BOTTOM = 19, PAD = 6;

function ticks(end) {
  const rough = end / (end < 100 ? 6 : 4), power = 10 ** Math.floor(Math.log10(rough));
  const step = power * [1, 2, 5, 10].find((factor) => factor * power >= rough);
  return Array.from({length: Math.floor(end / step + 1e-9) + 1}, (_, i) => Number((i * step).toPrecision(6)));
}

// One channel on fixed axes: from 0 to its capacity, from 0 to the end of the series in seconds.
function chart(record, curve) {
  const steps = curve.values.length, seconds = record.step_ms / 1000, end = Math.max(1, steps - 1) * seconds;
  const clamp = (share) => Math.min(1, Math.max(0, share));
  const x = (time) => LEFT + PAD + (WIDTH - LEFT - RIGHT - 2 * PAD) * clamp(time / end);
  const y = (value) => TOP + PAD + (HEIGHT - TOP - BOTTOM - 2 * PAD) * (1 - clamp(value / curve.capacity));
  const marks = record.marks.filter((mark) => mark.channel === curve.channel);
  const floor = HEIGHT - BOTTOM, right = WIDTH - RIGHT;
  const drawing = shape("svg", {viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": spoken(curve, marks)},
    shape("rect", {class: "frame", x: LEFT, y: TOP, width: right - LEFT, height: floor - TOP}));
  for (const share of [0, 0.5, 1]) {
    const level = y(share * curve.capacity);
    drawing.append(shape("line", {class: "grid", x1: LEFT, x2: right, y1: level, y2: level}));
    drawing.append(shape("text", {x: LEFT - 5, y: level + 4, "text-anchor": "end"}, number(share * curve.capacity)));
    if (curve.unit !== "%") drawing.append(shape("text", {x: right + 5, y: level + 4}, 100 * share + " %"));
  }
  for (const time of ticks(end)) {
    drawing.append(shape("line", {class: "grid", x1: x(time), x2: x(time), y1: TOP, y2: floor}),
      shape("text", {x: x(time), y: floor + 14, "text-anchor": "middle"}, number(time) + " s"));
  }
  for (const [start, after] of spans(curve.values, (value) => value === null)) {
    const from = x((start - 0.5) * seconds), to = x((after - 0.5) * seconds);
    drawing.append(shape("rect", {class: "gap", x: from, y: TOP + 0.5, width: to - from, height: floor - TOP - 1}));
  }
  for (const [start, after] of spans(curve.values, (value) => value !== null)) {
    const points = curve.values.slice(start, after).map((value, i) => `${x((start + i) * seconds).toFixed(1)},${y(value).toFixed(1)}`);
    if (points.length > 1) drawing.append(shape("polyline", {class: "curve", points: points.join(" ")}));
    else drawing.append(shape("circle", {class: "alone", cx: x(start * seconds), cy: y(curve.values[start]), r: 2}));
  }
  const cursor = shape("line", {class: "cursor", y1: TOP, y2: floor});
  drawing.append(cursor, ...marks.map((mark) => markShape(mark, curve, x, y, [LEFT, right, TOP, floor])));
  const named = marks.length || record.asked_channel === curve.channel;
  const caption = `${curve.channel}, 0 to ${withUnit(curve.capacity, curve.unit)}`;
  const figure = element("figure", {class: named ? "asked" : null}, element("figcaption", {}, caption), drawing);
  return {figure, drawing, moveTo: (step) => {
    const position = x(step * seconds);
    fill(cursor, {x1: position, x2: position}, []).style.visibility = "visible";
  }};
}

function spoken(curve, marks) {
  const there = curve.values.filter((value) => value !== null);
  const said = there.length ? `from ${number(there[0])} to ${number(there[there.length - 1])}, least ` +
    `${number(Math.min(...there))}, most ${withUnit(Math.max(...there), curve.unit)}` : "no measurement";
  return `${curve.channel}: ${said}. ` + marks.map((mark) => markText(mark, curve.unit)).join(". ");
}

function markText(mark, unit) {
  const value = mark.value === null ? "" : " " + withUnit(mark.value, unit);
  return mark.kind + value + (mark.time_s === null ? "" : ` at ${number(mark.time_s)} s`);
}

// A point is a dot if it is true and a larger diamond if it is predicted. A level or a time is a line with that symbol at its end.
function markShape(mark, curve, x, y, [left, right, top, floor]) {
  const title = shape("title", {}, markText(mark, curve.unit)), kind = {class: "mark " + mark.kind};
  if (mark.time_s === null && mark.value === null) return shape("g");
  const across = mark.time_s === null ? right - PAD : x(mark.time_s), height = mark.value === null ? top + PAD : y(mark.value);
  if (mark.time_s !== null && mark.value !== null) return symbol(mark.kind, across, height, title);
  const ends = mark.time_s === null ? {x1: left, x2: right, y1: height, y2: height} : {x1: across, x2: across, y1: top, y2: floor};
  const line = shape("line", {...kind, ...ends}, title);
  return mark.kind === "asked" ? line : shape("g", {}, line, symbol(mark.kind, across, height));
}

function symbol(kind, x, y, ...children) {
  if (kind === "true") return shape("circle", {class: "mark true", cx: x, cy: y, r: 3.5}, ...children);
  return shape("path", {class: "mark " + kind, d: `M${x},${y - 7.5}l7.5,7.5l-7.5,7.5l-7.5,-7.5z`}, ...children);
}

// The charts of a record, and a slider that reads their values at a time.
function curves(record) {
  const charts = record.curves.map((curve) => chart(record, curve));
  const last = Math.max(...record.curves.map((curve) => curve.values.length)) - 1;
  const slider = element("input", {type: "range", min: 0, max: last, value: 0, "aria-label": "time at which to read the values"});
  const output = element("output", {}, "Move the slider, or point at a curve, to read values.");
  const read = () => {
    const step = Number(slider.value);
    charts.forEach((drawn) => drawn.moveTo(step));
    output.textContent = `Step ${step}, ${number(step * record.step_ms / 1000)} s: ` + record.curves.map((curve) =>
      `${curve.channel} ${curve.values[step] === null ? "missing" : withUnit(curve.values[step], curve.unit)}`).join(" · ");
  };
  slider.addEventListener("input", read);
  for (const {drawing} of charts) {
    drawing.addEventListener("pointermove", (event) => {
      const box = drawing.getBoundingClientRect(), at = (event.clientX - box.left) / box.width * WIDTH;
      slider.value = Math.round((at - LEFT - PAD) / (WIDTH - LEFT - RIGHT - 2 * PAD) * last);
      read();
    });
  }
  return element("div", {}, element("div", {class: "curves"}, ...charts.map((drawn) => drawn.figure)),
    element("div", {class: "time"}, slider, output));
}

function legend(kinds) {
  const key = (drawn, text) => element("li", {}, shape("svg", {viewBox: "0 0 22 14", "aria-hidden": "true"}, drawn), text);
  const items = {
    asked: key(shape("line", {class: "mark asked", x1: 0, x2: 22, y1: 7, y2: 7}), "asked level or moment"),
    true: key(symbol("true", 11, 7), "true point"),
    predicted: key(symbol("predicted", 11, 7), "predicted point"),
  };
  return element("ul", {class: "legend"}, ...kinds.map((kind) => items[kind]),
    key(shape("rect", {class: "gap", width: 22, height: 14}), "missing measurements"));
}
