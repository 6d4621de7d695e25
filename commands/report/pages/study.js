// The study of a hyper-parameter search: its best trial, each trial as a line through all parameters, each parameter by itself.

const PARALLEL = {height: 300, left: 30, right: 30, top: 34, bottom: 26};

function shortKeys(parameters) {
  const last = (key) => key.slice(key.lastIndexOf(".") + 1), names = parameters.map(({key}) => last(key));
  return new Map(parameters.map(({key}, index) => [key, names.indexOf(names[index]) === names.lastIndexOf(names[index]) ? names[index] : key]));
}

function shown(value) {
  return value === null || value === undefined ? "–" : typeof value === "number" ? short(value) : String(value);
}

function describedTrial(trial, names) {
  const reached = trial.value === null ? trial.state : `${formatNumber(trial.value)} at step ${grouped(trial.step)}${trial.state === "pruned" ? ", pruned" : ""}`;
  return `${trial.name}: ${reached} (${[...names].map(([key, name]) => `${name} ${shown(trial.params[key])}`).join(", ")})`;
}

// Lines end between options, not within their names.
function commandLine(command) {
  return element("code", {}, ...command.split(/ (?=--)/).flatMap((part, index) => [index ? " " : "", element("span", {}, part)]));
}

function parallel(study, names) {
  const rated = study.trials.filter((trial) => trial.value !== null), told = element("output", {class: "told"}, "");
  const hint = "Point at a line to read its trial.";
  told.textContent = hint;
  const order = [...rated].sort((one, other) => study.direction === "maximize" ? one.value - other.value : other.value - one.value);
  const axes = [...study.parameters.map((parameter) => ({title: names.get(parameter.key), of: (trial) => trial.params[parameter.key], log: parameter.log})),
    {title: study.metric, of: (trial) => trial.value, log: false}].map((axis) => ({...axis, ...axisOf(rated.map(axis.of), axis.log, 0.08)}));
  const svg = shape("svg", {class: "parallel", role: "img", "aria-label": `Trials as lines through ${axes.map((axis) => axis.title).join(", ")}; the same is in the table of trials`});
  const holder = element("div", {class: "scroll"}, svg);

  function draw() {
    const {height, left, right, top, bottom} = PARALLEL, width = Math.max(holder.clientWidth, 96 * axes.length);
    if (!holder.clientWidth) return;
    const xAt = (column) => left + column * (width - left - right) / (axes.length - 1), yAt = (axis, trial) => height - bottom - axis.at(axis.of(trial)) * (height - top - bottom);
    svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    svg.setAttribute("width", width);
    svg.setAttribute("height", height);
    svg.replaceChildren();
    axes.forEach((axis, column) => {
      const anchor = column === 0 ? "start" : column === axes.length - 1 ? "end" : "middle", edge = column === 0 ? -20 : column === axes.length - 1 ? 20 : 0;
      svg.append(shape("line", {class: "axis", x1: xAt(column), x2: xAt(column), y1: top, y2: height - bottom}),
        shape("text", {class: "axis-name", x: xAt(column) + edge, y: 14, "text-anchor": anchor}, clipped(axis.title, 18), shape("title", {}, axis.title)));
    });
    for (const [index, trial] of order.entries()) {
      const isBest = trial.number === study.best, d = axes.map((axis, column) => `${column ? "L" : "M"}${xAt(column).toFixed(1)} ${yAt(axis, trial).toFixed(1)}`).join("");
      const rank = order.length > 1 ? index / (order.length - 1) : 1;
      const line = shape("path", {class: `trial ${isBest ? "c1" : "c0"}${trial.state === "pruned" ? " dash" : ""}`, d, "stroke-opacity": isBest ? 1 : (0.2 + 0.6 * rank).toFixed(2), "stroke-width": isBest ? 2.6 : 1.4});
      const target = shape("path", {class: "target", d});
      target.append(shape("title", {}, describedTrial(trial, names)));
      target.addEventListener("pointerenter", () => {
        line.classList.add("chosen");
        told.textContent = describedTrial(trial, names);
      });
      target.addEventListener("pointerleave", () => {
        line.classList.remove("chosen");
        told.textContent = hint;
      });
      svg.append(line, target);
    }
    axes.forEach((axis, column) => axis.ticks.forEach(([at, text]) => svg.append(shape("text", {class: "tick on-axis", x: xAt(column) + (column === axes.length - 1 ? -5 : 5),
      y: height - bottom - at * (height - top - bottom) + 4, "text-anchor": column === axes.length - 1 ? "end" : "start"}, clipped(text, 14)))));
  }

  drawn.all.push(draw);
  return element("div", {}, element("h3", {}, "Trials as lines through their values"), holder, told);
}

function study() {
  const study = content.study;
  if (!study) return null;
  const names = shortKeys(study.parameters), rated = study.trials.filter((trial) => trial.value !== null), best = study.trials.find((trial) => trial.number === study.best);
  const parts = [], count = (state) => study.trials.filter((trial) => trial.state === state).length;
  const states = ["complete", "pruned", "failed", "running"].map((state) => [state, count(state)]).filter(([, number]) => number).map(([state, number]) => `${number} ${state}`);
  parts.push(element("p", {class: "facts"}, element("span", {}, `${study.trials.length} trials: ${states.join(", ")}`), element("span", {}, `${study.direction} ${study.metric}`)));
  if (best) {
    parts.push(element("dl", {class: "tiles"}, tile(`best ${study.metric}`, formatNumber(best.value), `${best.name}, step ${grouped(best.step)}`), ...[...names].map(([key, name]) => tile(name, shown(best.params[key]), "of the best trial"))),
      element("p", {class: "note"}, "This command trains the best trial again:"), element("pre", {class: "command"}, commandLine(study.command)));
  }
  if (rated.length > 1) {
    parts.push(parallel(study, names), element("h3", {}, "Each parameter"), element("div", {class: "charts slices"}, ...study.parameters.map((parameter) => {
      const points = rated.map((trial) => ({value: trial.params[parameter.key], reached: trial.value, name: trial.name, color: "c0", faint: trial.state === "pruned"}));
      return sliceCard(names.get(parameter.key), points, study.metric, parameter.log, best && {value: best.params[parameter.key], reached: best.value});
    })), element("p", {class: "note"}, "The ring is the best trial; hollow points and dashed lines are pruned trials, at their best value until then."));
  }
  const sign = study.direction === "maximize" ? 1 : -1, stateOrder = (trial) => trial.state === "complete" ? 0 : trial.state === "pruned" ? 1 : 2;
  const sorted = [...study.trials].sort((one, other) => stateOrder(one) - stateOrder(other) || sign * ((other.value || 0) - (one.value || 0)) || one.number - other.number);
  const rows = sorted.map((trial) => element("tr", {class: trial.number === study.best ? "monitored" : null}, element("th", {scope: "row"}, trial.name),
    element("td", {class: "slim"}, element("span", {class: `state ${{complete: "good", pruned: "held", failed: "bad", running: ""}[trial.state]}`}, trial.state)),
    element("td", {class: "number own"}, trial.value === null ? "–" : formatNumber(trial.value)), ...[...names.keys()].map((key) => element("td", {class: "number own"}, shown(trial.params[key]))),
    element("td", {class: "message"}, trial.message)));
  parts.push(element("h3", {}, "All trials"), folding([head("trial", false), head("state", false), head(study.metric), ...[...names.values()].map((name) => head(name)), head("", false)], rows, "trials"));
  return section("study", "Study", ...parts);
}
