// The same samples at every evaluation: what was asked, what is right, what each model answered, and since when it is right.

const VERDICTS = {true: ["right", "✓"], false: ["wrong", "✗"], null: ["open", "·"]};

function shownRuns() {
  return runs.map((run, runIndex) => ({run, runIndex})).filter(({run}) => run.examples.steps.length);
}

function dots(run, name, chosen, choose) {
  return element("dd", {class: "dots", role: "group", "aria-label": "Evaluations"}, ...run.examples.steps.map(({step, answers}, i) => {
    const [kind, sign] = VERDICTS[answers[name] ? answers[name].right : null];
    const dot = element("button", {type: "button", class: `verdict ${kind}`, "aria-pressed": String(i === chosen), title: `step ${grouped(step)}${kind === "open" ? "" : ": " + kind}`}, sign);
    dot.addEventListener("click", () => choose(step));
    return dot;
  }));
}

// What was expected stands out in a list of several.
function found(answer, expected) {
  const lines = answer.split("\n").map((line, i, all) => i < all.length - 1 ? line + "\n" : line);
  const isIt = (line) => expected !== "" && lines.length > 1 && line.trim().replace(/^\d+\.\s*/, "") === expected;
  return lines.map((line) => isIt(line) ? element("mark", {class: "true"}, line) : line);
}

function answerOf({run, runIndex}, name, step, choose) {
  const steps = run.examples.steps, later = steps.findIndex((one) => one.step > step), index = later < 0 ? steps.length - 1 : Math.max(0, later - 1);
  const answer = steps[index].answers[name], sample = run.examples.samples[name];
  if (!answer) return [];
  const [kind, sign] = VERDICTS[answer.right], group = groups.findIndex((one) => one.runs.includes(runIndex));
  const blind = answer.blind === null ? [] : [element("p", {class: "blind"}, "without it: ", answer.blind === "" ? "(nothing)" : answer.blind)];
  return [element("dt", {class: "said"}, ...(single ? ["Answer"] : [element("span", {class: `swatch ${colorOf(group)}`}), run.name]), element("span", {class: "faint"}, ` at step ${grouped(steps[index].step)}`),
    ...(answer.right === null ? [] : [element("span", {class: `verdict ${kind}`}, `${sign} ${kind}`)])),
  element("dd", {}, answer.answer === "" ? element("span", {class: "none"}, "(nothing)") : "", ...found(answer.answer, sample.expected), ...blind), dots(run, name, index, choose)];
}

// A picture that has all of the page's width after a click, for pages with small print.
function enlarging(picture) {
  const button = element("button", {type: "button", class: "enlarge", "aria-pressed": "false", title: "Larger"}, picture);
  button.addEventListener("click", () => {
    const isLarge = button.closest(".card").classList.toggle("large");
    button.setAttribute("aria-pressed", String(isLarge));
    button.title = isLarge ? "Smaller" : "Larger";
  });
  return button;
}

function exampleCard(name, shown, step, choose) {
  const first = shown.find(({run}) => run.examples.samples[name]).run.examples, sample = first.samples[name];
  const holder = shown.map(({run}) => run.examples).find((examples) => examples.steps.some((one) => one.answers[name] && one.answers[name].picture));
  let picture = "";
  if (holder) {
    const at = [...holder.steps].reverse().find((one) => one.step <= step && one.answers[name] && one.answers[name].picture) || holder.steps.find((one) => one.answers[name] && one.answers[name].picture);
    picture = enlarging(element("img", {src: holder.pictures[at.answers[name].picture], alt: `Picture of ${name}`}));
  }
  const given = sample.question ? [element("dt", {}, "Given"), element("dd", {}, sample.question)] : [];
  const expected = sample.expected ? [element("dt", {}, "Expected"), element("dd", {}, sample.expected)] : [];
  const answers = shown.map((one) => answerOf(one, name, step, choose));
  const columns = single ? [[picture, given], ["", [...expected, ...answers[0]]]] : [[picture, [...given, ...expected]], ...answers.map((answer) => ["", answer])];
  return element("article", {class: "card example"}, element("header", {}, element("h3", {}, name)),
    element("div", {class: "beside"}, ...columns.map(([above, texts]) => element("div", {}, above, element("dl", {class: "texts"}, ...texts)))));
}

function examples() {
  const shown = shownRuns();
  if (!shown.length) return null;
  const steps = [...new Set(shown.flatMap(({run}) => run.examples.steps.map((one) => one.step)))].sort((one, other) => one - other);
  const names = [...new Set(shown.flatMap(({run}) => Object.keys(run.examples.samples)))];
  const slider = element("input", {type: "range", min: 0, max: steps.length - 1, step: 1, value: steps.length - 1, name: "evaluation"}), told = element("output", {}, "");
  const cards = element("div", {class: `cards examples${single ? "" : " several"}`});
  function show() {
    const step = steps[Number(slider.value)];
    told.textContent = `step ${grouped(step)}`;
    cards.replaceChildren(...names.map((name) => exampleCard(name, shown, step, choose)));
  }
  function choose(step) {
    slider.value = steps.indexOf(step);
    show();
  }
  slider.addEventListener("input", show);
  show();
  const some = shown.filter(({run}) => run.examples.evaluations > run.examples.steps.length), left = shown.reduce((sum, {run}) => sum + run.examples.left_out, 0);
  const notes = [...(some.length ? [`Of ${some[0].run.examples.evaluations} evaluations ${some[0].run.examples.steps.length} are shown.`] : []), ...(left ? [`${left} pictures are omitted to limit the size of the page.`] : [])];
  return section("examples", "Examples", ...(steps.length > 1 ? [element("label", {class: "inline evaluation"}, "Evaluation", slider, told)] : []),
    ...(notes.length ? [element("p", {class: "note"}, notes.join(" "))] : []), cards);
}
