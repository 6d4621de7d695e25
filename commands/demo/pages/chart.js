// Curves over steps, from 0 to 100 on an axis that names other values.

// A drawing is as wide as its card; of 600 units, a narrow window would make the text on the axes too small to read.
const PLOT = {...(innerWidth < 520 ? {width: 350, right: 334} : {width: 600, right: 584}), height: 236, left: 62, top: 10, floor: 204};

// Steps at round numbers from 0 to the last.
function stepTicks(last) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, last / 5)));
  const every = power * [1, 2, 5, 10].find((factor) => factor * power >= last / 5);
  return Array.from({length: Math.floor(last / every) + 1}, (_, index) => index * every);
}

// An empty plot {drawing, x(step), y(value)}. `highest`: value at its upper edge, on the scale of which 100 is `span[1]`.
function plot(last, highest, span, unit, label) {
  const {width, height, left, right, top, floor} = PLOT;
  const x = (step) => left + (right - left) * step / last, y = (value) => floor - (floor - top) * value / highest;
  const tick = (at, height, anchor, text) => shape("text", {class: "tick", x: at, y: height, "text-anchor": anchor}, text);
  const drawing = shape("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": label});
  for (const value of [0, 50, 100]) {
    drawing.append(shape("line", {class: "rule", x1: left, x2: right, y1: y(value), y2: y(value)}),
      tick(left - 10, y(value) + 4, "end", number(span[0] + (span[1] - span[0]) * value / 100) + (unit && " " + unit)));
  }
  for (const step of stepTicks(last)) drawing.append(tick(x(step), height - 7, "middle", step ? number(step) : "step 0"));
  return {drawing, x, y};
}

// The path of a curve, with a gap where a value is null; a value between two gaps is a dot.
function curvePath(values, x, y) {
  let path = "", pen = "M";
  values.forEach((value, point) => {
    if (value !== null) path += pen + x(point).toFixed(1) + " " + y(value).toFixed(1) + (pen === "M" ? "h0" : "");
    pen = value === null ? "M" : "L";
  });
  return path;
}

function chart(line) {
  const {left, right, floor} = PLOT, last = Math.max(1, (line.lines[0].values.length - 1) * line.every);
  const highest = Math.max(100, ...line.lines.flatMap((one) => one.values), ...line.marks.map((mark) => mark.value || 0));
  const {drawing, x, y} = plot(last, highest, line.span, line.unit, line.note);
  line.lines.forEach((one, index) => {
    drawing.append(shape("path", {class: "curve n" + index, d: curvePath(one.values, (point) => x(point * line.every), y)}));
  });
  for (const {step, value} of line.marks) {
    if (value === null) drawing.append(shape("line", {class: "mark", x1: x(step), x2: x(step), y1: 4, y2: floor}));
    else if (step === null) drawing.append(shape("line", {class: "mark", x1: left, x2: right, y1: y(value), y2: y(value)}));
    else drawing.append(shape("circle", {class: "mark", cx: x(step), cy: y(value), r: 5}));
  }
  const names = line.lines.map((one, index) => element("span", {class: "name n" + index}, one.name));
  return element("div", {}, drawing, element("p", {class: "names"}, ...names));
}
DRAW.chart = chart;
