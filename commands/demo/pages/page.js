// The page: fields, examples, the question, and the answers below it.

const MAKE = {picture: fileField, file: fileField, text: textField, choice: choiceField, time: timeField, pick: pickField};
const fields = new Map();
const answers = element("div", {class: "answers"});
const ask = button("Ask", submit, "ask");
let turns = [], asking = false;

async function submit() {
  if (asking) return;
  asking = ask.disabled = true;
  const values = Object.fromEntries([...fields].map(([name, field]) => [name, field.value()]));
  const [asked = "", ...more] = content.fields.filter((field) => field.kind === "text").map((field) => values[field.name].trim());
  const card = element("article", {class: "card"}), body = element("div");
  if (asked) card.append(element("p", {class: "asked"}, asked));
  for (const text of more) if (text) card.append(element("p", {class: "note more"}, text.replaceAll("\n", "; ")));
  card.append(body);
  if (content.talks) answers.append(card); else answers.replaceChildren(card);
  card.scrollIntoView({block: "nearest"}); // on a narrow page it is below the fields
  const blocks = new Blocks(body), start = performance.now();
  blocks.busy("answering");
  try {
    const sent = {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({values, turns: turns.slice(-20)})};
    for await (const line of lines(await fetch("ask", sent))) blocks.add(line);
    blocks.done(((performance.now() - start) / 1000).toFixed(1) + " s");
    if (!blocks.failed) {
      if (content.talks && blocks.answer !== null) turns.push([asked, blocks.answer]);
      for (const field of content.fields) if (!field.keeps) fields.get(field.name).clear();
    }
  } catch (error) {
    blocks.error("no answer: " + error.message);
  }
  asking = ask.disabled = false;
}

function forget() {
  turns = [];
  answers.replaceChildren();
}

function exampleButton(example) {
  const parts = example.picture ? [element("img", {src: example.picture, alt: ""})] : [];
  const made = button("", () => {
    forget();
    for (const [name, value] of Object.entries(example.values)) fields.get(name).set(value, example.picture);
  }, "example");
  made.append(...parts, element("span", {}, example.label));
  return made;
}

for (const field of content.fields) fields.set(field.name, MAKE[field.kind](field, submit));
const again = content.talks ? [button("New conversation", forget, "plain")] : [];
const examples = content.examples.length ? [element("section", {class: "field"}, element("h2", {}, "Examples"),
  element("div", {class: "examples"}, ...content.examples.map(exampleButton)))] : [];
page.append(
  element("header", {}, element("h1", {}, content.title),
    element("dl", {class: "facts"}, ...content.about.map(([name, value]) =>
      element("div", {}, element("dt", {}, name), element("dd", {}, value))))),
  element("div", {class: "sides"},
    element("div", {class: "input"}, ...[...fields.values()].map((field) => field.node),
      element("div", {class: "row"}, ask, ...again), ...examples),
    element("div", {class: "output", "aria-live": "polite"}, answers)));
