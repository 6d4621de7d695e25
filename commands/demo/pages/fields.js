// Fields of the input. Each is {node, value(), set(value), clear()}; a value is what /ask expects. `ready` waits for uploads.

async function* lines(response) {
  if (!response.ok) throw new Error(response.status === 401 ? "log in first" : "the server answered " + response.status);
  const reader = response.body.getReader(), decoder = new TextDecoder();
  let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    rest += done ? "" : decoder.decode(value, {stream: true});
    const parts = rest.split("\n");
    rest = parts.pop();
    for (const part of parts) if (part) yield JSON.parse(part);
    if (done) return;
  }
}

// Why a request has failed, in words for a visitor. A TypeError is what `fetch` throws without a server.
function reason(error) {
  return error instanceof TypeError ? "the program that serves this page does not answer; is it still running?" : error.message;
}

function frame(field, ...content) {
  return element("section", {class: "field", "data-field": field.name},
    element("h2", {id: "label-" + field.name}, field.label), ...content,
    ...(field.help ? [element("p", {class: "note"}, field.help)] : []));
}

function button(text, press, kind = null) {
  const made = element("button", {type: "button", class: kind}, text);
  made.addEventListener("click", press);
  return made;
}

function textField(field, submit) {
  const area = element("textarea", {rows: 2, maxlength: 4000, "aria-labelledby": "label-" + field.name});
  area.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    submit();
  });
  const quick = element("div", {class: "choices-row"}, ...field.choices.map((choice) =>
    button(choice.label, () => { area.value = choice.value; area.focus(); }, "plain")));
  return {
    node: frame(field, area, ...(field.choices.length ? [quick] : [])),
    value: () => area.value,
    set(value) { area.value = value; },
    clear() { area.value = ""; },
  };
}

function choiceField(field) {
  const select = element("select", {"aria-labelledby": "label-" + field.name},
    ...field.choices.map((choice) => element("option", {value: choice.value}, choice.label)));
  return {
    node: frame(field, select),
    value: () => select.value,
    set(value) { select.value = value; },
    clear() { select.selectedIndex = 0; },
  };
}

function timeField(field) {
  const input = element("input", {type: "datetime-local", step: "1", "aria-labelledby": "label-" + field.name});
  return {
    node: frame(field, input),
    value: () => input.value,
    set(value) { input.value = value; },
    clear() { input.value = ""; },
  };
}

// Values that are found by searching, in the order in which they are picked.
function pickField(field) {
  let picked = [];
  const list = element("ol", {class: "picked"});
  const search = searchList(field, (choice) => {
    const item = {value: choice.value, label: choice.label, time: ""};
    picked = field.max_count === 1 ? [item] : [...picked, item].slice(0, field.max_count);
    draw();
  });

  function draw() {
    list.replaceChildren(...picked.map((item, index) => pickedItem(field, item, () => {
      picked.splice(index, 1);
      draw();
    })));
  }
  return {
    node: frame(field, list, ...search.nodes),
    value: () => picked.map(({value, time}) => ({value, time})),
    set(values) {
      picked = values.map((item) => ({label: item.value, time: "", ...item}));
      search.empty();
      draw();
    },
    clear() { this.set([]); },
  };
}

function pickedItem(field, item, remove) {
  const parts = [element("span", {class: "title"}, item.label)];
  if (field.times) {
    const time = element("input", {type: "datetime-local", step: "1", "aria-label": "time of " + item.label});
    time.value = item.time;
    time.addEventListener("change", () => { item.time = time.value; });
    parts.push(time);
  }
  return element("li", {}, ...parts, button("remove", remove, "plain"));
}

// A search field and the list of what it finds; `pick` gets the choice that is clicked.
function searchList(field, pick) {
  let requests = 0;
  const search = element("input", {type: "search", placeholder: "search", autocomplete: "off", "aria-labelledby": "label-" + field.name});
  const found = element("div", {class: "found", role: "listbox", "aria-label": "found", tabindex: -1}); // it scrolls

  function choose(choice) {
    search.value = "";
    pick(choice);
    search.focus();
    close();
  }
  async function look() {
    const mine = ++requests;
    const [choices, problem] = await findChoices(field, search.value);
    if (mine !== requests) return;
    found.replaceChildren(...choices.map((choice) => {
      const option = button(choice.label, () => choose(choice));
      option.setAttribute("role", "option");
      option.tabIndex = -1; // the arrow keys choose among them; Tab goes on to the next field
      return option;
    }), ...(choices.length ? [] : [element("p", {class: "note"}, problem)]));
  }
  function close() {
    requests++; // what is still searched is not shown
    found.replaceChildren();
  }
  listenToSearch(search, found, look, close);
  return {nodes: [search, found], empty: () => found.replaceChildren()};
}

// The choices of a search, and why there are none.
async function findChoices(field, text) {
  try {
    const answer = await fetch("search?" + new URLSearchParams({field: field.name, text}));
    return [answer.ok ? await answer.json() : [], "nothing found"];
  } catch (error) {
    return [[], reason(error)];
  }
}

// The list opens at the focus and closes when the focus leaves; the arrow keys move in it, Enter takes the first choice.
function listenToSearch(search, found, look, close) {
  search.addEventListener("input", look);
  for (const kind of ["focus", "click"]) search.addEventListener(kind, () => { if (!found.children.length) look(); });
  found.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays, so that the list does
  for (const node of [search, found]) node.addEventListener("focusout", ({relatedTarget: next}) => {
    if (next !== search && !found.contains(next)) close();
  });
  found.addEventListener("keydown", (event) => {
    const next = {ArrowDown: "nextElementSibling", ArrowUp: "previousElementSibling"}[event.key];
    if (!next) return;
    event.preventDefault();
    (document.activeElement[next] || search).focus();
  });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") close();
    if (event.key === "ArrowDown") {
      event.preventDefault();
      if (found.querySelector("button")) found.querySelector("button").focus();
      else look();
    }
    if (event.key === "Enter" && found.querySelector("button")) found.querySelector("button").click();
  });
}
