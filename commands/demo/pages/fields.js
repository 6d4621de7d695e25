// Fields of the input. Each is {node, value(), set(value), clear()}; a value is what /ask expects.

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

// Files by drop, by choice or by the clipboard; a picture can also be drawn.
function fileField(field) {
  let given = [], upload = 0;
  const shown = element("div", {class: "given", "aria-live": "polite"});
  const list = element("ul", {class: "files"});
  const input = element("input", {type: "file", id: "input-" + field.name, "aria-labelledby": "label-" + field.name,
    accept: field.suffixes.join(","), ...(field.most > 1 ? {multiple: ""} : {})});
  const what = field.most > 1 ? "files" : field.kind === "picture" ? "a picture" : "a file";
  const zone = element("label", {class: "zone", for: "input-" + field.name},
    element("span", {}, "Drop " + what + " here, or "), element("span", {class: "link"}, "choose"), input);

  function list_files() {
    list.replaceChildren(...(field.most > 1 ? given.map((file) => element("li", {}, file.name,
      button("remove", () => { given = given.filter((other) => other !== file); list_files(); }, "plain"),
      ...(file.shown ? [file.shown] : []))) : []));
  }
  async function send(file) {
    const mine = ++upload, place = element("div"), blocks = new Blocks(place, false);
    if (field.most === 1) {
      given = []; // the file before it is no longer shown
      shown.replaceChildren(place);
    } else shown.append(place);
    if (file.size > field.max_bytes) {
      blocks.error(file.name + ": the file is larger than " + Math.floor(field.max_bytes / 2 ** 20) + " MB, the most that is accepted");
      return;
    }
    if (field.most > 1 && given.length >= field.most) {
      blocks.error(file.name + ": there are " + field.most + " files already, the most that is accepted");
      return;
    }
    blocks.busy("reading " + file.name);
    try {
      const target = "upload?" + new URLSearchParams({field: field.name, name: file.name});
      for await (const line of lines(await fetch(target, {method: "POST", body: file}))) {
        if (field.most === 1 && mine !== upload) return; // another file has been given meanwhile
        if (line.file) {
          given = field.most > 1 ? [...given, {...line, shown: place}] : [line];
          list_files();
        } else blocks.add(line);
      }
      blocks.done();
    } catch (error) {
      blocks.error("the file could not be sent: " + error.message);
    }
  }
  async function sendAll(files) {
    shown.replaceChildren(); // of earlier files that were refused
    for (const file of field.most > 1 ? files : [...files].slice(0, 1)) await send(file);
  }
  input.addEventListener("change", async () => { await sendAll([...input.files]); input.value = ""; });
  for (const kind of ["dragover", "dragenter"]) zone.addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    sendAll([...event.dataTransfer.files]);
  });
  const drawn = field.draw ? drawingPad(field, send) : null;
  return {
    node: frame(field, zone, ...(drawn ? [drawn.node] : []), list, shown),
    value: () => given.map(({file, name}) => ({file, name})),
    set(files, url) {
      upload++;
      given = files;
      list_files();
      shown.replaceChildren(...(url ? [element("img", {src: url, alt: files[0].name, class: "preview"})] : []));
      if (!url && field.most === 1 && files.length) shown.replaceChildren(element("p", {class: "note"}, files[0].name));
    },
    clear() { this.set([]); },
  };
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
  let picked = [], asked = 0;
  const search = element("input", {type: "search", placeholder: "search", autocomplete: "off", "aria-labelledby": "label-" + field.name});
  const found = element("div", {class: "found", role: "listbox"});
  const list = element("ol", {class: "picked"});

  function draw() {
    list.replaceChildren(...picked.map((item, place) => {
      const parts = [element("span", {class: "title"}, item.label)];
      if (field.times) {
        const time = element("input", {type: "datetime-local", step: "1", "aria-label": "time of " + item.label});
        time.value = item.time;
        time.addEventListener("change", () => { item.time = time.value; });
        parts.push(time);
      }
      parts.push(button("remove", () => { picked.splice(place, 1); draw(); }, "plain"));
      return element("li", {}, ...parts);
    }));
  }
  function add(choice) {
    const item = {value: choice.value, label: choice.label, time: ""};
    picked = field.most === 1 ? [item] : [...picked, item].slice(0, field.most);
    search.value = "";
    found.replaceChildren();
    draw();
    search.focus();
  }
  async function look() {
    const mine = ++asked;
    const answer = await fetch("search?" + new URLSearchParams({field: field.name, text: search.value}));
    const choices = answer.ok ? await answer.json() : [];
    if (mine !== asked) return;
    found.replaceChildren(...choices.map((choice) => {
      const option = button(choice.label, () => add(choice));
      option.setAttribute("role", "option");
      return option;
    }), ...(choices.length ? [] : [element("p", {class: "note"}, "nothing found")]));
  }
  search.addEventListener("input", look);
  search.addEventListener("focus", () => { if (!found.children.length) look(); });
  search.addEventListener("keydown", (event) => {
    if (event.key === "Escape") found.replaceChildren();
    if (event.key === "Enter" && found.querySelector("button")) found.querySelector("button").click();
  });
  return {
    node: frame(field, list, search, found),
    value: () => picked.map(({value, time}) => ({value, time})),
    set(values) {
      picked = values.map((item) => ({label: item.value, time: "", ...item}));
      found.replaceChildren();
      draw();
    },
    clear() { this.set([]); },
  };
}
