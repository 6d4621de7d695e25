// Files by drop, by choice, drawn, or taken by the camera. An upload shows the progress and the preview that come back.

function fileField(field) {
  const uploads = uploadList(field);
  const sendAll = async (files) => {
    uploads.clearShown(); // of earlier files that were refused
    if (field.max_count === 1) other.close();
    for (const file of field.max_count > 1 ? files : files.slice(0, 1)) await uploads.begin(file);
    if (field.max_count === 1 && files.length > 1) uploads.note("One file is read at a time: of these " + files.length + ", " + files[0].name + ".");
  };
  const other = otherWays([
    ...(field.draw ? [drawingPad(field, uploads.begin, uploads.unset)] : []),
    ...(field.camera ? [camera(uploads.begin)] : []),
    ...(field.sketch ? [sketchPad(field, (file) => uploads.begin(file, true), uploads.unsetQuiet)] : []),
  ]);
  return {
    node: frame(field, dropZone(field, sendAll), other.node, uploads.list, uploads.shown),
    give: sendAll,
    value: uploads.value,
    async ready() {
      other.flush();
      await uploads.finished();
    },
    set(files, url) {
      other.close();
      uploads.set(files, url);
    },
    clear() { this.set([]); },
  };
}

// Where files are dropped or chosen; `give` gets them.
function dropZone(field, give) {
  const input = element("input", {type: "file", id: "input-" + field.name, "aria-labelledby": "label-" + field.name,
    accept: field.suffixes.join(","), ...(field.max_count > 1 ? {multiple: ""} : {})});
  const what = field.max_count > 1 ? "files" : field.kind === "picture" ? "a picture" : "a file";
  const zone = element("label", {class: "zone", for: "input-" + field.name},
    element("span", {}, "Drop " + what + " here, or "), element("span", {class: "link"}, "choose"), input);
  input.addEventListener("change", async () => { await give([...input.files]); input.value = ""; });
  for (const kind of ["dragover", "dragenter"]) zone.addEventListener(kind, (event) => {
    event.preventDefault();
    zone.classList.add("over");
  });
  zone.addEventListener("dragleave", () => zone.classList.remove("over"));
  zone.addEventListener("drop", (event) => {
    event.preventDefault();
    zone.classList.remove("over");
    give([...event.dataTransfer.files]);
  });
  return zone;
}

// The files of a field that the server has accepted, those on their way, and what the page shows of them.
function uploadList(field) {
  let given = [], newest = 0;
  const pending = new Set();
  const shown = element("div", {class: "given", "aria-live": "polite"}), list = element("ul", {class: "files"});

  function keep(files) {
    given = files;
    list.replaceChildren(...(field.max_count > 1 ? given.filter((file) => !file.quiet).map((file) => element("li", {}, file.name,
      button("remove", () => keep(given.filter((other) => other !== file)), "plain"), ...(file.shown ? [file.shown] : []))) : []));
  }
  // `quiet`: the file replaces one of its name, and its own drawing is its preview.
  async function send(file, quiet) {
    const mine = ++newest, slot = element("div"), blocks = new Blocks(slot, {titles: false});
    if (quiet) given = given.filter((other) => !other.quiet);
    if (field.max_count === 1) {
      given = []; // the file before it is no longer shown
      shown.replaceChildren(slot);
    } else shown.append(slot);
    const refused = refusal(field, file, given.length);
    if (refused) return blocks.error(refused);
    await upload(field, file, blocks, {
      isReplaced: () => (field.max_count === 1 || quiet) && mine !== newest,
      accept: (line) => keep(field.max_count > 1 ? [...given, {...line, shown: slot, quiet}] : [line]),
      show: (line) => { if (!quiet || line.error) blocks.add(line); },
      drop: () => slot.remove(),
    });
    if (quiet && !blocks.failed) slot.remove();
  }
  // The file, or a promise of it.
  function begin(file, quiet = false) {
    const sent = Promise.resolve(file).then((ready) => send(ready, quiet)).finally(() => pending.delete(sent));
    pending.add(sent);
    return sent;
  }
  function unset() {
    newest++;
    keep([]);
    shown.replaceChildren();
  }
  function unsetQuiet() {
    newest++;
    given = given.filter((file) => !file.quiet);
    if (field.max_count === 1) unset();
  }
  function set(files, url) {
    unset();
    keep(files);
    if (url) shown.replaceChildren(element("img", {src: url, alt: files[0].name, class: "preview"}));
    else if (field.max_count === 1 && files.length) note(files[0].name);
  }
  const note = (text) => shown.append(element("p", {class: "note"}, text));
  const finished = async () => { while (pending.size) await Promise.all(pending); };
  const value = () => given.map(({file, name}) => ({file, name}));
  return {list, shown, begin, unset, unsetQuiet, set, note, finished, value, clearShown: () => shown.replaceChildren()};
}

// Why a file is not sent; empty if it may be.
function refusal(field, file, count) {
  if (file.size > field.max_bytes) {
    return file.name + ": the file is larger than " + Math.floor(field.max_bytes / 2 ** 20) + " MB, the most that is accepted";
  }
  if (field.max_count > 1 && count >= field.max_count) {
    return file.name + ": there are " + field.max_count + " files already, the most that is accepted";
  }
  return "";
}

// Send a file; the server answers with lines of progress, a preview, and the identifier of the file.
async function upload(field, file, blocks, {isReplaced, accept, show, drop}) {
  blocks.busy("reading " + file.name);
  try {
    const target = "upload?" + new URLSearchParams({field: field.name, name: file.name});
    for await (const line of lines(await fetch(target, {method: "POST", body: file}))) {
      if (isReplaced()) return drop(); // another file has been given meanwhile
      if (line.file) accept(line);
      else show(line);
    }
    blocks.done();
  } catch (error) {
    blocks.error("the file could not be sent: " + reason(error));
  }
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
