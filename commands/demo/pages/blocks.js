// Draws the parts of an answer as they come; a part with the key of an earlier one replaces it.

class Blocks {
  constructor(node, titles = true) {
    this.parts = new Map();
    this.state = element("p", {class: "state", role: "status"});
    this.node = node;
    this.titles = titles;
    this.answer = null;
    node.replaceChildren(this.state);
  }
  busy(text) {
    this.state.textContent = text + " …";
    this.state.className = "state busy";
  }
  done(text = "") {
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
    if (line.kind === "text" && line.is_answer) this.answer = line.text;
    const drawn = this.draw(line), old = this.parts.get(line.key);
    if (old) old.replaceWith(drawn); else this.node.insertBefore(drawn, this.state);
    this.parts.set(line.key, drawn);
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

// Steps at round numbers from 0 to the last.
function stepTicks(last) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, last / 5)));
  const every = power * [1, 2, 5, 10].find((factor) => factor * power >= last / 5);
  return Array.from({length: Math.floor(last / every) + 1}, (_, place) => place * every);
}

function chart(line) {
  const width = 600, height = 236, left = 62, right = width - 16, floor = height - 32;
  const last = Math.max(1, (line.lines[0].values.length - 1) * line.every), [low, high] = line.span;
  const top = Math.max(100, ...line.lines.flatMap((one) => one.values), ...line.marks.map((mark) => mark.value || 0));
  const x = (step) => left + (right - left) * step / last, y = (value) => floor - (floor - 10) * value / top;
  const label = (at, height, anchor, text) => shape("text", {class: "tick", x: at, y: height, "text-anchor": anchor}, text);
  const drawing = shape("svg", {viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": line.note});
  for (const value of [0, 50, 100]) {
    drawing.append(shape("line", {class: "rule", x1: left, x2: right, y1: y(value), y2: y(value)}),
      label(left - 10, y(value) + 4, "end", number(low + (high - low) * value / 100) + (line.unit && " " + line.unit)));
  }
  for (const step of stepTicks(last)) drawing.append(label(x(step), height - 7, "middle", step ? number(step) : "step 0"));
  line.lines.forEach((one, place) => {
    let path = "", pen = "M";
    one.values.forEach((value, point) => {
      if (value !== null) path += pen + x(point * line.every).toFixed(1) + " " + y(value).toFixed(1);
      pen = value === null ? "M" : "L";
    });
    drawing.append(shape("path", {class: "curve n" + place, d: path}));
  });
  for (const {step, value} of line.marks) {
    if (value === null) drawing.append(shape("line", {class: "mark", x1: x(step), x2: x(step), y1: 4, y2: floor}));
    else if (step === null) drawing.append(shape("line", {class: "mark", x1: left, x2: right, y1: y(value), y2: y(value)}));
    else drawing.append(shape("circle", {class: "mark", cx: x(step), cy: y(value), r: 5}));
  }
  const names = line.lines.map((one, place) => element("span", {class: "name n" + place}, one.name));
  return element("div", {}, drawing, element("p", {class: "names"}, ...names));
}

const DRAW = {
  chart,
  text: (line) => element("p", {class: line.faint ? "said faint" : "said"}, line.text),
  note: (line) => element("p", {class: "note"}, line.text),
  bars: (line) => table("", [{name: ""}, {name: "", bar: true}, {name: "", number: true}],
    line.bars.map((item) => [item.label, bar(item.share), percent(item.share)])),
  table: (line) => table("", line.columns.map((name, place) => ({name, number: line.rows.some((row) => typeof row[place] === "number")})),
    line.rows.map((row) => row.map((cell) => typeof cell === "number" ? number(cell) : cell))),
  pictures: (line) => element("div", {class: "pictures"}, ...line.pictures.map((shown) => picture(shown, line.large))),
};
