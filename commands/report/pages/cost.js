// What each run has cost: its time, the hours of its threads or GPUs, and its energy where the machine has counters.

function hours(seconds) {
  return seconds < 3600 ? `${number(seconds / 3600, 2)} h` : `${number(seconds / 3600, 3)} h`;
}

function devicesOf(run) {
  const {processes, threads, device} = run.environment;
  if (!processes) return null;
  const isCpu = device === "cpu";
  return {isCpu, count: isCpu ? processes * (threads || 1) : processes, text: isCpu ? `${processes} × ${threads || 1} threads` : `${processes} × ${device}`};
}

// The energy of a run in a unit that suits all of them, and which devices it is of: counters may be missing.
function energyOf({energy}, most) {
  if (!energy) return "–";
  const unit = most < 36000 ? "Wh" : "kWh", scale = unit === "Wh" ? 3600 : 3.6e6;
  const parts = [["CPUs", energy.cpu], ["GPUs", energy.gpu]].filter(([, joules]) => joules > 0);
  const of = parts.length > 1 ? parts.map(([name, joules]) => `${name} ${number(joules / scale, 3)}`).join(", ") : parts.length ? `${parts[0][0]} only` : "";
  return element("span", {}, `${number((energy.cpu + energy.gpu) / scale, 3)} ${unit}`, of && element("small", {class: "difference"}, of));
}

function cost() {
  if (runs.every((run) => !run.attempts.length)) return null;
  const metric = single ? null : runs[0].monitor.name, most = Math.max(...runs.map(({energy}) => energy ? energy.cpu + energy.gpu : 0));
  const ofKind = (isCpu) => (run) => {
    const devices = devicesOf(run);
    return devices && devices.isCpu === isCpu ? hours(trained(run) * devices.count) : "–";
  };
  const all = [["devices", (run) => (devicesOf(run) || {text: "–"}).text], ["training time", (run) => duration(trained(run))], ["core hours", ofKind(true)], ["GPU hours", ofKind(false)],
    ["energy", (run) => energyOf(run, most)], ...(metric && runs.every((run) => run.monitor.name === metric) ? [[`best ${metric}`, (run) => formatNumber(run.results.val[metric])]] : [])];
  const columns = all.filter(([, of]) => runs.some((run) => of(run) !== "–"));
  const rows = runs.map((run, index) => element("tr", {}, ...(single ? [] : [element("th", {scope: "row"}, element("span", {class: `swatch ${colorOf(groups.findIndex((group) => group.runs.includes(index)))}`}), run.name)]),
    ...columns.map(([, of]) => element("td", {class: single ? "own" : "number own"}, of(run)))));
  const notes = ["Core and GPU hours are the training time of all starts, repeated steps included, times the threads or the GPUs that the run occupied.",
    ...(most ? ["Energy is that of the training, also of all starts; the counters of CPUs include other programs of the machine."] : [])];
  return section("cost", "Cost", folding([...(single ? [] : [head("run", false)]), ...columns.map(([name]) => head(name, !single))], rows, "runs"), element("p", {class: "note"}, notes.join(" ")));
}
