// What the reader has chosen, what is drawn anew when that changes, and how numbers are written.

const runs = content.runs, groups = content.groups, single = runs.length === 1;
const COLORS = 8;
const FAULTS = new Set(["run_failed", "checkpoint_failed", "checkpoint_skipped", "gradients_not_finite", "rolled_back",
  "process_lost", "straggler", "waiting_for_data", "sample_skipped", "memory_rising", "out_of_memory", "tracker_failed",
  "disk_full", null]);
const RESTARTS = new Set(["run_resumed", "run_restarted", "run_requeued", "run_preempted"]);

// axis: "step" or "time" (seconds since the run began); from, to: what is shown of it; cursor: where the reader points.
const view = {axis: "step", from: null, to: null, cursor: null, smoothing: 0, log: false, each: false, hidden: new Set()};
const drawn = {all: [], cursor: []};
let waiting = null;

function change(what) {
  const before = {...view};
  Object.assign(view, what);
  if ("axis" in what && what.axis !== before.axis) Object.assign(view, {from: null, to: null, cursor: null});
  const kinds = Object.keys(what).join() === "cursor" ? "cursor" : "all";
  if (waiting !== null && waiting.kinds !== kinds) waiting.kinds = "all";
  if (waiting === null) {
    waiting = {kinds};
    requestAnimationFrame(redraw);
  }
}

function redraw() {
  const kinds = waiting ? waiting.kinds : "all";
  waiting = null;
  if (kinds === "all") for (const draw of drawn.all) draw();
  for (const draw of drawn.cursor) draw();
}

// Where the axis begins and ends, of all runs together.
function whole() {
  let end = 0;
  for (const run of runs) {
    for (const attempt of run.attempts) end = Math.max(end, view.axis === "step" ? attempt.to : attempt.ended);
    for (const {[view.axis]: values} of run.points) end = Math.max(end, values[values.length - 1] || 0);
  }
  return [0, end || 1];
}

function shownPart() {
  return view.from === null ? whole() : [view.from, view.to];
}

function at(happening) {
  return view.axis === "time" ? happening.time : happening.reached_step;
}

function isFault(happening) {
  return FAULTS.has(happening.event);
}

function duration(seconds) {
  const total = Math.max(0, Math.round(seconds)), [h, m, s] = [Math.floor(total / 3600), Math.floor(total / 60) % 60, total % 60];
  if (h >= 48) return `${Math.floor(h / 24)} d ${h % 24} h`;
  return h ? `${h} h ${m} min` : m ? `${m} min ${s} s` : seconds < 10 && seconds > 0 ? `${number(seconds, 2)} s` : `${s} s`;
}

function clock(seconds, parts = 16) {
  return new Date(1000 * seconds).toISOString().replace("T", " ").slice(0, parts + 3);
}

function positionText(value) {
  return view.axis === "time" ? duration(value) : `step ${grouped(Math.round(value))}`;
}

function grouped(value) {
  return String(value).replace(/\B(?=(\d{3})+$)/g, "\u2009");
}

// A number as people write it: 0.6964, 12 430, 3.0e-4.
function formatNumber(value, name = "") {
  if (value === null || value === undefined) return "–";
  if (SHARES.test(name)) return percent(value);
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2).replace("e+", "e");
  if (size >= 1000) return grouped(Math.round(value));
  return size >= 100 ? value.toFixed(1) : size >= 10 ? value.toFixed(2) : size >= 1 ? value.toFixed(3) : value.toFixed(4);
}

const SHARES = /(data_wait|mfu|real_tokens|real_positions)$/;

const EVENT_NAMES = {run_started: "started", run_resumed: "resumed", run_ended: "ended", run_failed: "failed",
  run_preempted: "preempted", run_requeued: "requeued", run_restarted: "restarted", checkpoint_saved: "checkpoint saved",
  checkpoint_kept: "checkpoint kept", evaluated: "evaluation"};

function eventName(happening) {
  return happening.event === null ? happening.level : EVENT_NAMES[happening.event] || happening.event.replaceAll("_", " ");
}

function colorOf(index) {
  return `c${index % COLORS}`;
}

function section(id, title, ...children) {
  return element("section", {id}, element("h2", {}, title), ...children);
}

// A button of several, of which one is pressed.
function choices(label, options, chosen, choose) {
  const box = element("div", {class: "choices", role: "group", "aria-label": label});
  const buttons = options.map(([value, text]) => {
    const button = element("button", {type: "button", "aria-pressed": String(value === chosen)}, text);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      choose(value);
    });
    return button;
  });
  box.append(...buttons);
  return box;
}
