// Axes on which a curve is drawn with the mouse, a finger or the keyboard. It is sent as a CSV file.

const SKETCH_KEYS = {ArrowUp: 5, ArrowDown: -5, PageUp: 20, PageDown: -20};
const SKETCH_HELP = "Draw with the mouse, a finger or the arrow keys; Delete removes a step. A step that is left out is a missing measurement.";
const KEYBOARD_PAUSE = 400; // milliseconds after a key before the curve is sent

function sketchPad(field, send, unset) {
  const {curves, points, time, step} = field.sketch;
  let values = Array(points).fill(null), at = 0, before = null, timer = null, axes = null;
  const select = element("select", {"aria-label": "what the curve is"}, ...curves.map((curve, index) =>
    element("option", {value: index}, curve.unit ? `${curve.name} (${curve.unit})` : curve.name)));
  const holder = element("div"), path = shape("path", {class: "curve n0"}), cursor = shape("circle", {class: "cursor", r: 5});
  const curve = () => curves[select.value || 0];

  function axesOf() {
    axes = plot(Math.max(1, points - 1), 100, [0, curve().top], curve().unit, null);
    axes.drawing.append(path, cursor);
    fill(axes.drawing, {class: "chart sketch", tabindex: 0, role: "slider", "aria-label": "the curve, step by step",
      "aria-valuemin": 0, "aria-valuemax": curve().top}, []);
    for (const [kind, act] of [["pointerdown", down], ["pointermove", move], ["pointerup", later], ["keydown", key]])
      axes.drawing.addEventListener(kind, act);
    holder.replaceChildren(axes.drawing);
    draw();
  }
  function draw() {
    const value = values[at], known = value === null ? "missing" : number(value * curve().top / 100) + " " + curve().unit;
    path.setAttribute("d", curvePath(values, axes.x, axes.y));
    fill(cursor, {cx: axes.x(at), cy: axes.y(value === null ? 0 : value)}, []);
    fill(axes.drawing, {"aria-valuenow": value === null ? 0 : value * curve().top / 100, "aria-valuetext": `step ${at}: ${known}`}, []);
  }
  function pointed(event) {
    const box = axes.drawing.getBoundingClientRect(), {width, height, left, right, top, floor} = PLOT;
    const across = ((event.clientX - box.left) * width / box.width - left) / (right - left);
    const up = (floor - (event.clientY - box.top) * height / box.height) / (floor - top);
    const within = (share) => Math.min(1, Math.max(0, share));
    return [Math.round(within(across) * (points - 1)), 100 * within(up)];
  }
  function down(event) {
    axes.drawing.setPointerCapture(event.pointerId);
    before = null;
    move(event);
  }
  // The steps between two places of the pointer are interpolated.
  function move(event) {
    if (!event.buttons) return;
    const [to, value] = pointed(event), [from, first] = before || [to, value];
    for (let one = Math.min(from, to); one <= Math.max(from, to); one++)
      values[one] = from === to ? value : first + (value - first) * (one - from) / (to - from);
    before = [at = to, value];
    draw();
  }
  function key(event) {
    const old = values[at];
    if (event.key in SKETCH_KEYS) values[at] = Math.min(100, Math.max(0, (old === null ? 50 : old) + SKETCH_KEYS[event.key] / (event.shiftKey ? 5 : 1)));
    else if (event.key === "ArrowRight") {
      at = Math.min(points - 1, at + 1);
      if (values[at] === null) values[at] = old;
    } else if (event.key === "ArrowLeft") at = Math.max(0, at - 1);
    else if (event.key === "Home") at = 0;
    else if (event.key === "End") at = points - 1;
    else if (event.key === "Delete" || event.key === "Backspace") values[at] = null;
    else return;
    event.preventDefault();
    draw();
    later(null, KEYBOARD_PAUSE);
  }
  function later(event, pause = 0) {
    clearTimeout(timer);
    timer = setTimeout(flush, pause);
  }
  function flush() {
    if (timer === null) return;
    clearTimeout(timer);
    timer = null;
    const last = values.findLastIndex((value) => value !== null);
    if (last < 0) return unset();
    const cell = (value) => value === null ? "" : String(Number((value * curve().top / 100).toFixed(4)));
    const rows = values.slice(0, Math.max(2, last + 1)).map((value, one) => (time ? one * step + "," : "") + cell(value));
    send(new File([[(time ? time + "," : "") + curve().name, ...rows, ""].join("\n")], "drawn.csv"));
  }
  function clean() {
    values = Array(points).fill(null);
    at = 0;
    clearTimeout(timer);
    timer = null;
    draw();
  }
  select.addEventListener("change", () => { axesOf(); later(); });
  axesOf();
  const node = element("div", {class: "way"}, ...(curves.length > 1 ? [select] : []), holder,
    element("p", {class: "note"}, SKETCH_HELP),
    element("div", {class: "row"}, button("Clear", () => { clean(); unset(); }, "plain")));
  return {name: "Draw a curve", node, open() {}, close() { clean(); unset(); }, flush};
}
