// What was run and where: settings and how they differ, machine and versions.

function valueCell(value, differs) {
  return element("td", {class: differs ? "value differs" : "value"}, value === null || value === undefined ? element("span", {class: "none"}, "–") : value === "" ? element("span", {class: "none"}, "(empty)") : value);
}

function differs(values) {
  return values.some((value) => value !== values[0]);
}

function runHeads() {
  return single ? [] : [element("thead", {}, element("tr", {}, element("th", {scope: "col"}, "setting"), ...runs.map((run, index) =>
    element("th", {scope: "col"}, element("span", {class: `swatch ${colorOf(groups.findIndex((group) => group.runs.includes(index)))}`}), run.name))))];
}

function keyRows(rows, marked) {
  return rows.map(([key, values]) => element("tr", {"data-key": key.toLowerCase() + " " + values.join(" ").toLowerCase()}, element("th", {scope: "row", class: "key"}, key), ...values.map((value) => valueCell(value, marked && differs(values)))));
}

function keyTable(rows, marked = true) {
  return element("div", {class: "scroll"}, element("table", {class: "keys"}, ...runHeads(), element("tbody", {}, ...keyRows(rows, marked))));
}

// Runs of two families differ in nearly everything: the first are shown, the rest on demand.
function differenceTable(rows) {
  const box = keyTable(rows.slice(0, ROWS), false), rest = keyRows(rows.slice(ROWS), false);
  if (!rest.length) return box;
  const more = element("button", {type: "button", class: "plain"}, `Show ${rest.length} more differences`);
  more.addEventListener("click", () => {
    box.querySelector("tbody").append(...rest);
    more.remove();
  });
  return element("div", {}, box, more);
}

function settings() {
  const keys = [...new Set(runs.flatMap((run) => Object.keys(run.settings)))];
  if (!keys.length) return null;
  const parts = new Map([["model", []], ["data", []], ["trainer", []], ["others", []]]);
  for (const key of keys) {
    const top = key.split(".")[0], values = runs.map((run) => run.settings[key] === undefined ? null : run.settings[key]);
    parts.get(parts.has(top) ? top : "others").push([key, values]);
  }
  const search = element("input", {type: "search", name: "setting"});
  const boxes = [...parts].filter(([, rows]) => rows.length).map(([name, rows]) =>
    element("details", {class: "settings"}, element("summary", {}, name, element("span", {class: "faint"}, ` ${rows.length}`)), keyTable(rows)));
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const box of boxes) {
      let found = 0;
      for (const row of box.querySelectorAll("tr[data-key]")) {
        row.hidden = !words.every((word) => row.dataset.key.includes(word));
        found += row.hidden ? 0 : 1;
      }
      box.hidden = !found;
      box.open = Boolean(words.length && found);
    }
  });
  const changed = runs.flatMap((run) => run.starts.flatMap((start) => start.changes.map(([key, before, after]) => [single ? "" : run.name, start.name, key, before, after])));
  return section("settings", "Settings",
    ...(single ? [] : [element("h3", {}, "Differences"), content.differences.length ? differenceTable(content.differences.map(({key, values}) => [key, values])) : element("p", {class: "note"}, "All runs have the same settings.")]),
    ...(changed.length ? [element("h3", {}, "Changed at a later start"), table(null, [...(single ? [] : [{name: "run"}]), {name: "file"}, {name: "setting"}, {name: "before"}, {name: "after"}],
      changed.map((row) => (single ? row.slice(1) : row).map((cell) => cell === null ? "–" : cell)))] : []),
    element("h3", {}, single ? "As it was last started" : "All"), element("label", {class: "inline find"}, "Find", search), ...boxes);
}

function environmentRows() {
  const flat = (facts) => Object.fromEntries(Object.entries(facts).flatMap(([key, value]) =>
    value !== null && typeof value === "object" ? Object.entries(value).map(([name, inner]) => [name, inner]) : [[key, value]]).map(([key, value]) => [key, value === null ? null : String(value)]));
  const all = runs.map((run) => flat(run.environment)), names = [...new Set(all.flatMap(Object.keys))];
  return names.map((name) => [name, all.map((facts) => facts[name] === undefined ? null : facts[name])]);
}

function environment() {
  const rows = environmentRows();
  if (!rows.length) return null;
  if (single) return section("environment", "Environment", element("dl", {class: "about pairs"}, ...rows.map(([name, [value]]) => element("div", {}, element("dt", {}, name), element("dd", {}, value === null ? "–" : value)))));
  return section("environment", "Environment", keyTable([...rows].sort((one, other) => Number(differs(other[1])) - Number(differs(one[1])))));
}
