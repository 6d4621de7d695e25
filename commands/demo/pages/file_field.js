// Files by drop, by choice, drawn, or taken by the camera. An upload shows the progress and the preview that come back.

function fileField(field) {
  let given = [], upload = 0;
  const uploads = new Set();
  const shown = element("div", {class: "given", "aria-live": "polite"});
  const list = element("ul", {class: "files"});
  const input = element("input", {type: "file", id: "input-" + field.name, "aria-labelledby": "label-" + field.name,
    accept: field.suffixes.join(","), ...(field.most > 1 ? {multiple: ""} : {})});
  const what = field.most > 1 ? "files" : field.kind === "picture" ? "a picture" : "a file";
  const zone = element("label", {class: "zone", for: "input-" + field.name},
    element("span", {}, "Drop " + what + " here, or "), element("span", {class: "link"}, "choose"), input);

  function listFiles() {
    list.replaceChildren(...(field.most > 1 ? given.filter((file) => !file.quiet).map((file) => element("li", {}, file.name,
      button("remove", () => { given = given.filter((other) => other !== file); listFiles(); }, "plain"),
      ...(file.shown ? [file.shown] : []))) : []));
  }
  // `quiet`: the file replaces one of its name, and its own drawing is its preview.
  async function send(file, quiet = false) {
    const mine = ++upload, slot = element("div"), blocks = new Blocks(slot, {titles: false});
    if (quiet) given = given.filter((other) => !other.quiet);
    if (field.most === 1) {
      given = []; // the file before it is no longer shown
      shown.replaceChildren(slot);
    } else shown.append(slot);
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
        if ((field.most === 1 || quiet) && mine !== upload) return slot.remove(); // another file has been given meanwhile
        if (line.file) {
          given = field.most > 1 ? [...given, {...line, shown: slot, quiet}] : [line];
          listFiles();
        } else if (!quiet || line.error) blocks.add(line);
      }
      blocks.done();
      if (quiet && !blocks.failed) slot.remove();
    } catch (error) {
      blocks.error("the file could not be sent: " + reason(error));
    }
  }
  // The file, or a promise of it.
  function begin(file, quiet = false) {
    const sent = Promise.resolve(file).then((ready) => send(ready, quiet)).finally(() => uploads.delete(sent));
    uploads.add(sent);
    return sent;
  }
  function unset() {
    upload++;
    given = [];
    listFiles();
    shown.replaceChildren();
  }
  async function sendAll(files) {
    shown.replaceChildren(); // of earlier files that were refused
    if (field.most === 1) other.close();
    for (const file of field.most > 1 ? files : files.slice(0, 1)) await begin(file);
    if (field.most === 1 && files.length > 1) shown.append(element("p", {class: "note"}, "One file is read at a time: of these " + files.length + ", " + files[0].name + "."));
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
  const other = otherWays([
    ...(field.draw ? [drawingPad(field, begin, unset)] : []),
    ...(field.camera ? [camera(begin)] : []),
    ...(field.sketch ? [sketchPad(field, (file) => begin(file, true), () => {
      upload++;
      given = given.filter((file) => !file.quiet);
      if (field.most === 1) unset();
    })] : []),
  ]);
  return {
    node: frame(field, zone, other.node, list, shown),
    give: sendAll,
    value: () => given.map(({file, name}) => ({file, name})),
    async ready() {
      other.flush();
      while (uploads.size) await Promise.all(uploads);
    },
    set(files, url) {
      unset();
      other.close();
      given = files;
      listFiles();
      shown.replaceChildren(...(url ? [element("img", {src: url, alt: files[0].name, class: "preview"})] : []));
      if (!url && field.most === 1 && files.length) shown.replaceChildren(element("p", {class: "note"}, files[0].name));
    },
    clear() { this.set([]); },
  };
}

// Buttons that open other ways to give a file, one at a time; each way is {name, node, open(), close(), flush()}.
function otherWays(ways) {
  let current = null;
  const toggles = ways.map((way) => {
    const toggle = button(way.name, () => select(current === way ? null : way), "plain");
    toggle.setAttribute("aria-expanded", "false");
    way.node.hidden = true;
    return toggle;
  });
  function select(way) {
    if (current === way) return;
    if (current) current.close();
    current = way;
    ways.forEach((one, index) => {
      one.node.hidden = one !== way;
      toggles[index].setAttribute("aria-expanded", String(one === way));
    });
    if (way) way.open();
  }
  const node = element("div", {class: "ways"}, ...(ways.length ? [element("div", {class: "row"}, ...toggles)] : []),
    ...ways.map((way) => way.node));
  return {node, close: () => select(null), flush: () => { if (current && current.flush) current.flush(); }};
}
