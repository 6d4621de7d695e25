// What each run has cost: its time, and the hours of its threads or GPUs.

function hours(seconds) {
  return seconds < 3600 ? `${number(seconds / 3600, 2)} h` : `${number(seconds / 3600, 3)} h`;
}

function devicesOf(run) {
  const {processes, threads, device} = run.environment;
  if (!processes) return null;
  const isCpu = device === "cpu";
  return {isCpu, count: isCpu ? processes * (threads || 1) : processes, text: isCpu ? `${processes} × ${threads || 1} threads` : `${processes} × ${device}`};
}

function cost() {
  if (single || runs.every((run) => !run.attempts.length)) return null;
  const metric = runs[0].monitor.name, shows = metric && runs.every((run) => run.monitor.name === metric);
  const rows = runs.map((run, place) => {
    const devices = devicesOf(run), seconds = trained(run);
    const cells = [devices ? devices.text : "–", duration(seconds), devices && devices.isCpu ? hours(seconds * devices.count) : "–", devices && !devices.isCpu ? hours(seconds * devices.count) : "–",
      ...(shows ? [figure(run.results.val[metric])] : [])];
    return element("tr", {}, element("th", {scope: "row"}, element("span", {class: `swatch ${colour(groups.findIndex((group) => group.runs.includes(place)))}`}), run.name),
      ...cells.map((cell) => element("td", {class: "number own"}, cell)));
  });
  return section("cost", "Cost", folding([head("run", false), head("devices"), head("training time"), head("core hours"), head("GPU hours"), ...(shows ? [head(`best ${metric}`)] : [])], rows, "runs"),
    element("p", {class: "note"}, "Core and GPU hours are the training time of all starts, repeated steps included, times the threads or the GPUs that the run occupied."));
}
