// Axes on which a curve is drawn with the mouse, a finger or the keyboard. It is sent as a CSV file.

const SKETCH_KEYS = {ArrowUp: 5, ArrowDown: -5, PageUp: 20, PageDown: -20};
const SKETCH_HELP = "Draw with the mouse, a finger or the arrow keys; Delete removes a step. A step that is left out is a missing measurement.";
const KEYBOARD_PAUSE = 400; // milliseconds after a key before the curve is sent

function sketchPad(field, send, unset) {
  const {curves} = field.sketch;
  const select = element("select", {"aria-label": "what the curve is"}, ...curves.map((curve, index) =>
    element("option", {value: index}, curve.unit ? `${curve.name} (${curve.unit})` : curve.name)));
  const curve = () => curves[select.value || 0];
  const timer = pausedCall(() => {
    const file = curveFile(field.sketch, curve(), sketch.drawn().values);
    if (file === null) unset();
    else send(file);
  });
  const holder = element("div");
  let sketch = null;

  function start(drawn) {
    sketch = sketchAxes(field.sketch, curve(), drawn, timer.start);
    holder.replaceChildren(sketch.node);
  }
  function clear() {
    timer.stop();
    sketch.clear();
    unset();
  }
  select.addEventListener("change", () => { start(sketch.drawn()); timer.start(); });
  start({});
  const node = element("div", {class: "way"}, ...(curves.length > 1 ? [select] : []), holder,
    element("p", {class: "note"}, SKETCH_HELP), element("div", {class: "row"}, button("Clear", clear, "plain")));
  return {name: "Draw a curve", node, open() {}, close: clear, flush: timer.flush};
}

// A call after a pause; a later start replaces an earlier one, and `flush` does not wait for the pause.
function pausedCall(call) {
  let timer = null;
  function stop() {
    clearTimeout(timer);
    timer = null;
  }
  function flush() {
    if (timer === null) return;
    stop();
    call();
  }
  function start(pause = 0) {
    stop();
    timer = setTimeout(flush, pause);
  }
  return {start, stop, flush};
}

// The drawn steps as a CSV file; null if no step is drawn.
function curveFile({time, step}, curve, values) {
  const last = values.findLastIndex((value) => value !== null);
  if (last < 0) return null;
  const cell = (value) => value === null ? "" : String(Number((value * curve.top / 100).toFixed(4)));
  const rows = values.slice(0, Math.max(2, last + 1)).map((value, index) => (time ? index * step + "," : "") + cell(value));
  return new File([[(time ? time + "," : "") + curve.name, ...rows, ""].join("\n")], "drawn.csv");
}

// Axes with the value of each step, in percent of the largest; `changed` is called with the pause before it is sent.
function sketchAxes({points}, curve, {values = Array(points).fill(null), at = 0}, changed) {
  let before = null;
  const path = shape("path", {class: "curve n0"}), cursor = shape("circle", {class: "cursor", r: 5});
  const axes = plot(Math.max(1, points - 1), 100, [0, curve.top], curve.unit, null);

  function draw() {
    const value = values[at], text = value === null ? "missing" : number(value * curve.top / 100) + " " + curve.unit;
    path.setAttribute("d", curvePath(values, axes.x, axes.y));
    fill(cursor, {cx: axes.x(at), cy: axes.y(value === null ? 0 : value)}, []);
    fill(axes.drawing, {"aria-valuenow": value === null ? 0 : value * curve.top / 100, "aria-valuetext": `step ${at}: ${text}`}, []);
  }
  function down(event) {
    axes.drawing.setPointerCapture(event.pointerId);
    before = null;
    move(event);
  }
  // The steps between two places of the pointer are interpolated.
  function move(event) {
    if (!event.buttons) return;
    const [to, value] = pointedStep(axes.drawing, event, points), [from, first] = before || [to, value];
    for (let index = Math.min(from, to); index <= Math.max(from, to); index++)
      values[index] = from === to ? value : first + (value - first) * (index - from) / (to - from);
    before = [at = to, value];
    draw();
  }
  function key(event) {
    const next = stepOfKey(event, values, at);
    if (next === null) return;
    at = next;
    event.preventDefault();
    draw();
    changed(KEYBOARD_PAUSE);
  }
  function clear() {
    values = Array(points).fill(null);
    at = 0;
    draw();
  }
  axes.drawing.append(path, cursor);
  fill(axes.drawing, {class: "chart sketch", tabindex: 0, role: "slider", "aria-label": "the curve, step by step",
    "aria-valuemin": 0, "aria-valuemax": curve.top}, []);
  for (const [kind, act] of [["pointerdown", down], ["pointermove", move], ["pointerup", () => changed()], ["keydown", key]])
    axes.drawing.addEventListener(kind, act);
  draw();
  return {node: axes.drawing, clear, drawn: () => ({values, at})};
}

// The step and the value, in percent, to which an event points.
function pointedStep(drawing, event, points) {
  const box = drawing.getBoundingClientRect(), {width, height, left, right, top, floor} = PLOT;
  const across = ((event.clientX - box.left) * width / box.width - left) / (right - left);
  const up = (floor - (event.clientY - box.top) * height / box.height) / (floor - top);
  const within = (share) => Math.min(1, Math.max(0, share));
  return [Math.round(within(across) * (points - 1)), 100 * within(up)];
}

// The step to which a key goes, after it has changed the value there; null for a key without a meaning.
function stepOfKey(event, values, at) {
  const old = values[at], last = values.length - 1;
  if (event.key in SKETCH_KEYS) values[at] = Math.min(100, Math.max(0, (old === null ? 50 : old) + SKETCH_KEYS[event.key] / (event.shiftKey ? 5 : 1)));
  else if (event.key === "ArrowRight") {
    const next = Math.min(last, at + 1);
    if (values[next] === null) values[next] = old;
    return next;
  } else if (event.key === "ArrowLeft") return Math.max(0, at - 1);
  else if (event.key === "Home") return 0;
  else if (event.key === "End") return last;
  else if (event.key === "Delete" || event.key === "Backspace") values[at] = null;
  else return null;
  return at;
}
