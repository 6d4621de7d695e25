// Whose page this is: name and state of a run in a few numbers, or a table of several, which is their legend.

const STATES = {run_ended: ["ended", "good"], run_failed: ["failed", "bad"], run_preempted: ["preempted", "held"], process_lost: ["lost a rank", "bad"], out_of_memory: ["out of memory", "bad"], open: ["no end recorded", "held"]};

function stateOf(run) {
  const last = run.attempts[run.attempts.length - 1];
  const trial = content.study && content.study.trials.find((one) => one.name === run.name);
  if (trial && trial.state === "pruned") return element("span", {class: "state held"}, "pruned"); // not preempted: the sweep has ended it
  const [text, kind] = STATES[last && last.end || "open"];
  return element("span", {class: `state ${kind}`}, run.logged ? text : "no log");
}

function faultsOf(run) {
  return Object.entries(run.counts).filter(([name]) => FAULTS.has(name) || ["warning", "error", "critical"].includes(name)).reduce((sum, [, count]) => sum + count, 0);
}

function trained(run) {
  return run.attempts.reduce((sum, attempt) => sum + attempt.ended - attempt.began, 0);
}

function ended(run) {
  return run.attempts.reduce((latest, attempt) => Math.max(latest, attempt.ended), 0);
}

// Steps that were done, lost with a process, and done again.
function doneAgain(run) {
  return run.attempts.slice(1).reduce((sum, attempt, i) => sum + Math.max(0, run.attempts[i].to - attempt.from), 0);
}

function className(run, key) {
  const path = run.settings[`${key}.class_path`];
  return path ? path.slice(path.lastIndexOf(".") + 1) : null;
}

function tile(name, value, note, ...more) {
  return element("div", {class: "tile"}, element("dt", {}, name), element("dd", {}, element("strong", {}, value), element("small", {}, note || "\u00a0"), ...more));
}

function sparkline(run, name) {
  const line = courseOf(run, name);
  if (!line || line.x.length < 2) return "";
  const [low, high] = yRange([{...line, low: null, high: null}], -Infinity, Infinity, false, []), last = line.x[line.x.length - 1] || 1;
  return shape("svg", {class: "spark c0", viewBox: "0 0 100 26", preserveAspectRatio: "none", "aria-hidden": "true"},
    shape("path", {d: path(line, (x) => 100 * x / last, (y) => 24 - 22 * (y - low) / (high - low))}));
}

function tiles(run) {
  const facts = run.summary, faults = faultsOf(run), restarts = Math.max(0, run.attempts.length - 1), monitor = run.monitor.name;
  const down = ended(run) - trained(run), again = doneAgain(run), best = monitor && run.results.val[monitor];
  const loss = run.series["train/loss"];
  return element("dl", {class: "tiles"},
    ...(best !== undefined && best !== null && monitor ? [tile(`best ${monitor}`, formatNumber(best), `at step ${grouped(run.results.val_step)}`, sparkline(run, monitor))] : []),
    ...(loss ? [tile("training loss", formatNumber(loss.mean[loss.mean.length - 1]), `from ${formatNumber(loss.mean[0])}`, sparkline(run, "train/loss"))] : []),
    tile("steps", grouped(facts.steps), facts.epochs ? `${facts.epochs} epoch${facts.epochs > 1 ? "s" : ""}` : ""),
    tile("training time", duration(trained(run)), down > 1 ? `${duration(down)} between starts` : "without a break"),
    ...(facts.samples_per_second !== null ? [tile("samples / s", formatNumber(facts.samples_per_second), "median")] : []),
    ...(facts.memory_gib !== null ? [tile("memory", `${number(facts.memory_gib, 3)} GiB`, "peak")] : []),
    tile("restarts", run.logged ? String(restarts) : "–", run.logged ? again ? `${grouped(again)} steps done again` : "no step done twice" : "not recorded"),
    tile("faults and warnings", run.logged ? String(faults) : "–", run.logged ? faults ? "see Events" : "none is logged" : "not recorded"));
}

function facts(run) {
  const about = run.environment, processes = about.processes;
  const parts = [className(run, "model"), className(run, "data"), processes ? `${processes} process${processes > 1 ? "es" : ""} on ${about.device}` : null,
    about.precision, run.settings.seed_everything ? `seed ${run.settings.seed_everything}` : null, about.commit ? `commit ${about.commit}` : null];
  return element("p", {class: "facts"}, ...parts.filter(Boolean).map((part) => element("span", {}, part)));
}

function runTable() {
  const same = runs.every((run) => run.monitor.name === runs[0].monitor.name), monitor = runs.some((run) => run.monitor.name);
  const best = (run) => run.monitor.name ? (same ? "" : run.monitor.name + " ") + formatNumber(run.results.val[run.monitor.name]) : "–";
  const columns = ["run", "state", "seed", ...(monitor ? [same ? `best ${runs[0].monitor.name}` : "best"] : []), "at step", "steps", "training time", "samples/s", "memory", "restarts", "faults, warnings"];
  const head = columns.map((name, i) => element("th", {scope: "col", class: i > 2 ? "number" : null}, name));
  const rows = groups.flatMap((group, index) => group.runs.map((runIndex, member) => {
    const run = runs[runIndex], box = element("input", {type: "checkbox", name: `run-${runIndex}`});
    box.checked = true;
    box.addEventListener("change", () => {
      view.hidden[box.checked ? "delete" : "add"](runIndex);
      change({hidden: view.hidden});
    });
    const cells = [run.settings.seed_everything || "–", ...(monitor ? [best(run)] : []), run.results.val_step === null ? "–" : grouped(run.results.val_step),
      grouped(run.summary.steps), duration(trained(run)), formatNumber(run.summary.samples_per_second), run.summary.memory_gib === null ? "–" : `${number(run.summary.memory_gib, 3)} GiB`,
      run.logged ? String(Math.max(0, run.attempts.length - 1)) : "–", run.logged ? String(faultsOf(run)) : "–"];
    return element("tr", {class: member ? null : "first"},
      element("th", {scope: "row"}, element("label", {class: "legend-entry"}, box, element("span", {class: `swatch ${colorOf(index)}`}), run.name)),
      element("td", {class: "slim"}, stateOf(run)), ...cells.map((cell, i) => element("td", {class: i ? "number" : "slim"}, cell)));
  }));
  return element("div", {class: "scroll"}, element("table", {class: "runs"}, element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...rows)));
}

function heading() {
  const began = Math.min(...runs.map((run) => run.began).filter(Boolean)), made = content.made.replace("T", " ").slice(0, 16);
  const when = Number.isFinite(began) ? `began ${clock(began, 13)} UTC · ` : "";
  const box = element("header", {class: "head"}, element("p", {class: "over"}, content.study ? "Study report" : "Run report", element("span", {}, `${when}read ${made} UTC`)));
  if (single && !content.study) {
    box.append(element("div", {class: "name"}, element("h1", {}, runs[0].name), stateOf(runs[0])), facts(runs[0]), tiles(runs[0]));
    if (runs[0].links.length) box.append(element("p", {class: "links"}, "Beside this page: ", ...runs[0].links.flatMap((link, i) => [i ? " · " : "", element("a", {href: link.href}, link.name)])));
  } else {
    const seeded = groups.filter((group) => group.runs.length > 1);
    box.append(element("div", {class: "name"}, element("h1", {}, content.study ? content.study.name : `${runs.length} runs compared`)),
      element("p", {class: "facts"}, element("span", {}, content.study ? "the trials of a hyper-parameter search" : seeded.length ? seeded.map((group) => `${group.name}: ${group.runs.length} seeds, shown as mean and spread`).join("; ") : "each with a config of its own")), runTable());
  }
  return box;
}

const LISTED_PROBLEMS = 5;

// Records of the runs that are skipped. The page lacks them.
function notice() {
  const items = content.problems.map((problem) => element("li", {}, problem));
  if (!items.length) return [];
  const rest = items.splice(LISTED_PROBLEMS);
  const title = element("strong", {}, "This page lacks records that are missing or cannot be read:");
  const more = rest.length ? [element("details", {}, element("summary", {}, `${rest.length} more`), element("ul", {}, ...rest))] : [];
  return [element("aside", {class: "notice"}, title, element("ul", {}, ...items), ...more)];
}

function navigation(sections) {
  return element("nav", {"aria-label": "On this page"}, ...sections.map((one) => element("a", {href: `#${one.id}`}, one.querySelector("h2").textContent)));
}
