// The data report: statistics of all samples, curves of some.

function spreadRow(name, spread, unit = "") {
  return [name, ...["min", "median", "mean", "max"].map((key) => number(spread[key]) + (unit && spread[key] !== null ? " " + unit : ""))];
}

const SPREAD = ["least", "median", "mean", "most"].map((name) => ({name, number: true}));

function shareTable(caption, what, counts) {
  const total = Object.values(counts).reduce((sum, count) => sum + count, 0);
  return table(caption, [{name: what}, {name: "samples", number: true}, {name: "share", number: true}, {name: "", bar: true}],
    Object.entries(counts).map(([name, count]) => [name, String(count), percent(count / total), bar(count / total)]));
}

function verdict(text, good) {
  return element("span", {class: good ? "good" : "bad"}, text);
}

function histogram(counts) {
  const most = Math.max(1, ...counts), width = 100 / counts.length;
  return shape("svg", {viewBox: "0 0 100 20", preserveAspectRatio: "none", role: "img", class: "histogram",
    "aria-label": "measurements from 0 to the capacity: " + counts.join(", ")},
    ...counts.map((count, i) => shape("rect", {class: "part", x: i * width, width: width * 0.9, y: 20 - 20 * count / most, height: 20 * count / most})));
}

function channelTable(channels) {
  const columns = [{name: "channel"}, {name: "capacities"}, ...SPREAD, {name: "0 to capacity", bar: true},
    {name: "at 0", number: true}, {name: "at capacity", number: true}, {name: "missing", number: true}, {name: "outside", number: true}];
  return table(null, columns, channels.map((channel) => {
    const [least, most] = [channel.capacities[0], channel.capacities[channel.capacities.length - 1]];
    return [...[channel.channel, least === most ? withUnit(least, channel.unit) : `${number(least)} to ${withUnit(most, channel.unit)}`],
      ...spreadRow("", channel.values).slice(1), histogram(channel.histogram),
      percent(channel.empty), percent(channel.full), percent(channel.missing), verdict(String(channel.outside), channel.outside === 0)];
  }));
}

function leakTable(leaks) {
  const columns = [{name: "task"}, {name: "samples", number: true}, {name: "majority", number: true}, {name: "best guess", number: true}, {name: "standard error", number: true},
    {name: "best clue"}, {name: "verdict"}];
  return table(null, columns, leaks.map((leak) => [leak.task, String(leak.samples), percent(leak.majority), percent(leak.guess), percent(leak.standard_error), leak.clue,
    verdict(leak.suspicious ? "the question gives the class away" : "no leak seen", !leak.suspicious)]));
}

function dataReport() {
  const summary = content.summary;
  about("Data report");
  page.append(element("h2", {}, `${summary.samples} samples`), element("div", {class: "tables"},
    shareTable("Tasks", "task", summary.tasks),
    ...Object.entries(summary.classes).map(([task, counts]) => shareTable(`Classes of ${task}`, "class", counts)),
    table("Series", [{name: ""}, ...SPREAD], [spreadRow("steps", summary.steps), spreadRow("seconds", summary.seconds)]),
    table("Texts", [{name: ""}, ...SPREAD], Object.entries(summary.texts).map(([name, spread]) => spreadRow(name, spread))),
    table("Missing", [{name: ""}, {name: "share", number: true}], [["measurements", percent(summary.missing.measurements)],
      ["series with a missing measurement", percent(summary.missing.series)]]),
    table("Violations, expected are none", [{name: ""}, {name: "count", number: true}],
      Object.entries(summary.violations).map(([name, count]) => [name, verdict(String(count), count === 0)]))));
  for (const [what, counts] of Object.entries(summary.templates)) {
    if (Object.keys(counts).length) page.append(element("h2", {}, `Templates of the ${what}s`), shareTable(null, "template", counts));
  }
  page.append(element("h2", {}, "Channels"),
    element("p", {class: "note"}, "Of the measurements that are there. Outside counts those below 0, above the capacity or no number."),
    channelTable(summary.channels));
  page.append(element("h2", {}, "Can the class be guessed from the question alone?"),
    element("p", {class: "note"}, "The best of several clues and their pairs, chosen on one half of the samples and scored on the other. " +
      "More than three standard errors above the majority is a leak: a model would learn to ignore the series."),
    summary.leaks.length ? leakTable(summary.leaks) : element("p", {}, "There are no classes, or too few samples."));
  page.append(element("h2", {}, `${content.records.length} examples`), legend(["asked", "true"]),
    element("div", {class: "cards two"}, ...content.records.map(exampleCard)));
}

function exampleCard(record) {
  return element("article", {class: "card"},
    element("header", {}, element("h3", {}, `Sample ${record.sample}`),
      element("span", {class: "faint"}, [record.task, record.class].filter(Boolean).join(" · "))),
    curves(record),
    element("dl", {class: "texts"}, element("dt", {}, "Question"), element("dd", {}, record.question),
      element("dt", {}, "Answer"), element("dd", {}, record.truth)));
}

dataReport();
