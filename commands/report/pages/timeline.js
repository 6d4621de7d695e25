// What happened when: starts, evaluations, checkpoints and faults on the axis of the curves.

const LANE = 26;

function lanesOf(run) {
  const of = (test) => run.events.filter(test);
  // Evaluations are also in the metrics, which a run without a log still has.
  const evaluations = of((one) => one.event === "evaluated");
  const name = Object.keys(run.series).find((key) => key.startsWith("val/"));
  const points = name ? run.points[run.series[name].points_index] : {step: [], time: []};
  const shown = evaluations.length ? evaluations : points.step.map((step, i) => ({step, reached_step: step, time: points.time[i], event: "evaluated", message: "", process: 0, level: "info"}));
  return [
    {name: "training", attempts: run.attempts},
    {name: "evaluations", kind: "evaluation", happenings: shown},
    {name: "checkpoints", kind: "checkpoint", happenings: of((one) => one.event === "checkpoint_saved")},
    {name: "restarts", kind: "restart", happenings: of((one) => RESTARTS.has(one.event))},
    {name: "faults", kind: "fault", happenings: of(isFault)},
  ].filter((lane) => lane.attempts || lane.happenings.length);
}

function glyph(kind, x, y) {
  if (kind === "fault") return shape("path", {class: "glyph fault", d: `M${x} ${y - 6}L${x + 6} ${y}L${x} ${y + 6}L${x - 6} ${y}Z`});
  if (kind === "restart") return shape("path", {class: "glyph restart", d: `M${x - 4} ${y - 5.5}L${x + 5.5} ${y}L${x - 4} ${y + 5.5}Z`});
  return shape("line", {class: `glyph ${kind}`, x1: x, x2: x, y1: y - 6, y2: y + 6});
}

function bars(attempts, xAt, y, className) {
  const [low, high] = view.axis === "step" ? ["from", "to"] : ["began", "ended"];
  return attempts.flatMap((attempt, i) => {
    const bar = shape("rect", {class: `attempt ${className}`, x: xAt(attempt[low]), y: y - 6, height: 12, rx: 2.5, width: Math.max(2, xAt(attempt[high]) - xAt(attempt[low]))});
    bar.append(shape("title", {}, `start ${i + 1}: steps ${attempt.from} to ${attempt.to}, ${duration(attempt.ended - attempt.began)}`));
    const again = i && view.axis === "step" ? attempts[i - 1].to - attempt.from : 0;
    if (again <= 0) return [bar];
    const lost = shape("rect", {class: "again", x: xAt(attempt.from), y: y - 6, height: 12, rx: 2.5, width: Math.max(3, xAt(attempts[i - 1].to) - xAt(attempt.from))});
    lost.append(shape("title", {}, `${again} steps done again`));
    return [bar, lost];
  });
}

// What a mark is, in words: its track, event, step, time and, of a fault, the first line of its message.
function described({happening, track}) {
  const step = happening.step === null ? "–" : grouped(happening.step);
  const message = happening.message && isFault(happening) ? ": " + happening.message.split("\n")[0].slice(0, 160) : "";
  return `${single ? "" : track + ": "}${eventName(happening)} at step ${step}, ${duration(happening.time)}${message}`;
}

function timeline() {
  const tracks = single ? lanesOf(runs[0]).map((lane) => ({name: lane.name, lanes: [lane], color: "c0"}))
    : groups.flatMap((group, index) => group.runs.map((run) => ({name: runs[run].name, lanes: lanesOf(runs[run]), color: colorOf(index)})));
  const svg = shape("svg", {class: "tracks", role: "img", tabindex: 0, "aria-label": "What happened when; the same is in the table of events"});
  const names = element("ul", {class: "track-names"}, ...tracks.map((track) => element("li", {}, track.name)));
  const told = element("output", {class: "told"}, "");
  const state = {from: 0, to: 1, lines: []}, shown = [];

  function draw() {
    const width = svg.clientWidth, height = LANE * tracks.length + ROOM.bottom;
    if (!width) return;
    const [from, to] = shownPart(), right = width - ROOM.right, xAt = (x) => ROOM.left + (x - from) / (to - from) * (right - ROOM.left);
    Object.assign(state, {from, to, xAt, height});
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("height", height);
    shown.length = 0;
    const inside = shape("g", {"clip-path": "url(#clip-tracks)"});
    svg.replaceChildren(shape("clipPath", {id: "clip-tracks"}, shape("rect", {x: ROOM.left - 6, y: 0, width: right - ROOM.left + 12, height})));
    tracks.forEach((track, i) => {
      const y = LANE * i + LANE / 2;
      svg.append(shape("line", {class: "grid", x1: ROOM.left, x2: right, y1: y, y2: y}));
      for (const lane of track.lanes) {
        if (lane.attempts) inside.append(...bars(lane.attempts, xAt, y, track.color));
        else if (single || lane.kind !== "evaluation" && lane.kind !== "checkpoint") for (const happening of lane.happenings) {
          inside.append(glyph(lane.kind, xAt(at(happening)), y));
          shown.push({x: at(happening), happening, track: track.name});
        }
      }
    });
    for (const tick of xTicks(from, to, right - ROOM.left)) svg.append(shape("text", {class: "tick", x: xAt(tick), y: height - 5, "text-anchor": xAt(tick) > right - 16 ? "end" : "middle"}, axisLabel(tick, to - from)));
    svg.append(inside, shape("g", {class: "cursor"}));
    const steps = [...new Set(shown.map((one) => one.x))].sort((one, other) => one - other);
    state.lines = [{x: steps.length ? steps : [0]}];
    point();
  }

  function point() {
    if (!state.xAt) return;
    const isPointed = view.cursor !== null && view.cursor >= state.from && view.cursor <= state.to, layer = svg.querySelector("g.cursor");
    layer.replaceChildren(...(isPointed ? [shape("line", {x1: state.xAt(view.cursor), x2: state.xAt(view.cursor), y1: 0, y2: state.height - ROOM.bottom})] : []));
    const near = isPointed ? shown.filter((one) => Math.abs(state.xAt(one.x) - state.xAt(view.cursor)) <= 7) : [];
    near.sort((one, other) => Number(isFault(other.happening)) - Number(isFault(one.happening)));
    told.replaceChildren(...(near.length ? near.slice(0, 3).map((one) => element("span", {class: isFault(one.happening) ? "bad" : null}, described(one)))
      : [element("span", {class: "faint"}, single ? "Point at a mark to read what it is." : "Bars are training; triangles are restarts, diamonds are faults and warnings.")]));
  }

  listen(svg, state);
  drawn.all.push(draw);
  drawn.cursor.push(point);
  const missing = runs.filter((run) => !run.logged).map((run) => run.name);
  return section("timeline", "Time line", element("div", {class: "timeline"}, names, svg), told,
    ...(missing.length ? [element("p", {class: "note"}, `No log.jsonl of ${missing.join(", ")}: starts, checkpoints and faults are not known.`)] : []));
}
