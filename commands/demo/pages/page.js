// The page: fields, examples, the question, and the answers below it.

const MAKE = {picture: fileField, file: fileField, text: textField, choice: choiceField, time: timeField, pick: pickField};
const fields = new Map();
const answers = element("div", {class: "answers"});
const ask = button("Ask", submit, "ask");
let turns = [], conversation = 0, asking = false;

// Ask, and draw the answer as it comes; return whether there is one.
async function receive(blocks, values) {
  const start = performance.now(), earlier = turns.slice(-20);
  asking = ask.disabled = true;
  blocks.busy("answering");
  try {
    const sent = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({values, turns: earlier})};
    for await (const line of lines(await fetch("ask", sent))) blocks.add(line);
  } catch (error) {
    blocks.error("no answer: " + reason(error));
  }
  blocks.done("answered in " + ((performance.now() - start) / 1000).toFixed(1) + " s");
  asking = ask.disabled = false;
  return !blocks.failed;
}

async function submit() {
  if (asking) return;
  asking = ask.disabled = true;
  for (const field of fields.values()) if (field.ready) await field.ready();
  const values = Object.fromEntries([...fields].map(([name, field]) => [name, field.value()])), mine = conversation;
  const [asked = "", ...more] = content.fields.filter((field) => field.kind === "text").map((field) => values[field.name].trim());
  const card = element("article", {class: "card"}), body = element("div");
  if (asked) card.append(element("p", {class: "asked"}, asked));
  for (const text of more) if (text) card.append(element("p", {class: "note more"}, text.replaceAll("\n", "; ")));
  card.append(body);
  if (content.is_conversation) answers.append(card); else answers.replaceChildren(card);
  card.scrollIntoView({block: "nearest"}); // on a narrow page it is below the fields
  const blocks = new Blocks(body, {runs: content.runs});
  follow(card, blocks, values);
  if (!await receive(blocks, values) || mine !== conversation) return; // a new conversation has begun meanwhile
  const answered = Array.from({length: Math.max(1, content.runs.length)}, (_, run) => blocks.answers[run] || "");
  if (content.is_conversation && blocks.answers.length) turns.push([asked, ...answered]); // "" of a run that could not answer
  for (const field of content.fields) if (!field.is_persistent) fields.get(field.name).clear();
}

// Ask again with the newest value of a slider of the answer.
function follow(card, blocks, values) {
  let wanted = null;
  card.addEventListener("follow", async (event) => {
    const {field, value} = event.detail, waits = wanted !== null;
    wanted = {...values, [field]: value};
    if (waits) return;
    for (let shown = null; wanted !== shown;) {
      while (asking) await new Promise((resolve) => setTimeout(resolve, 20));
      shown = wanted;
      blocks.again();
      await receive(blocks, shown);
    }
    wanted = null;
  });
}

function forget() {
  conversation++;
  turns = [];
  answers.replaceChildren();
}

function exampleButton(example) {
  const parts = example.picture ? [element("img", {src: example.picture, alt: ""})] : [];
  const made = button("", () => {
    forget();
    for (const {name, kind} of content.fields) if (kind !== "choice" && !(name in example.values)) fields.get(name).clear();
    for (const [name, value] of Object.entries(example.values)) fields.get(name).set(value, example.picture);
  }, "example");
  made.append(...parts, element("span", {}, example.label));
  return made;
}

for (const field of content.fields) fields.set(field.name, MAKE[field.kind](field, submit));
// A file that is dropped beside its field would replace the page. It goes to the field if there is a single one.
addEventListener("dragover", (event) => { if (event.dataTransfer.types.includes("Files")) event.preventDefault(); });
addEventListener("drop", (event) => {
  if (event.defaultPrevented || !event.dataTransfer.files.length) return;
  event.preventDefault();
  const takers = [...fields.values()].filter((field) => field.give);
  if (takers.length === 1) takers[0].give([...event.dataTransfer.files]);
});
const again = content.is_conversation ? [button("New conversation", forget, "plain")] : [];
const examples = content.examples.length ? [element("section", {class: "field"}, element("h2", {}, "Examples"),
  element("div", {class: "examples"}, ...content.examples.map(exampleButton)))] : [];
page.append(
  element("header", {}, element("h1", {}, content.title),
    ...(content.task ? [element("p", {class: "task"}, content.task)] : []),
    element("dl", {class: "facts"}, ...content.about.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value))))),
  element("div", {class: content.runs.length ? "sides compared" : "sides"},
    element("div", {class: "input"}, ...[...fields.values()].map((field) => field.node),
      element("div", {class: "row"}, ask, ...again), ...examples),
    element("div", {class: "output", "aria-live": "polite"}, answers)));
