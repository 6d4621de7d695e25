// All events of the log, as a table: faults and restarts first, the rest on demand.

const AT_ONCE = 100;

function events() {
  const all = runs.flatMap((run) => run.events.map((one) => ({...one, run}))).sort((one, other) => one.time - other.time);
  if (!all.length) return null;
  const grave = (one) => isFault(one) || RESTARTS.has(one.event) || ["run_started", "run_ended"].includes(one.event);
  const kinds = new Map();
  for (const run of runs) for (const [kind, count] of Object.entries(run.counts)) kinds.set(kind, (kinds.get(kind) || 0) + count);
  const kindOf = (one) => one.event || one.level;
  const options = [["grave", `starts, ends and faults (${all.filter(grave).length})`], ["", `all (${[...kinds.values()].reduce((sum, count) => sum + count, 0)})`],
    ...[...kinds].sort().map(([kind, count]) => [kind, `${kind.replaceAll("_", " ")} (${count})`])];
  const select = element("select", {name: "event"}, ...options.map(([value, text]) => element("option", {value}, text)));
  const body = element("tbody"), more = element("button", {type: "button", class: "plain"}, ""), status = element("p", {class: "note", role: "status"}, "");
  let room = AT_ONCE;

  function show() {
    const wanted = all.filter((one) => select.value === "grave" ? grave(one) : !select.value || kindOf(one) === select.value);
    body.replaceChildren(...wanted.slice(0, room).map(row));
    more.hidden = wanted.length <= room;
    more.textContent = `Show ${Math.min(AT_ONCE, wanted.length - room)} more`;
    const total = select.value === "grave" ? wanted.length : select.value ? kinds.get(select.value) : [...kinds.values()].reduce((sum, count) => sum + count, 0);
    status.textContent = wanted.length < total ? `${wanted.length} of ${total}, in even distances; log.jsonl has all` : wanted.length ? "" : "None of these.";
  }

  function row(one) {
    const kind = isFault(one) ? "bad" : RESTARTS.has(one.event) ? "held" : one.event === "run_ended" ? "good" : "";
    const more = Object.entries(one.fields).filter(([, value]) => value !== "null" && value.length < 60).slice(0, 6).map(([name, value]) => `${name} ${value}`).join(" · ");
    return element("tr", {}, element("td", {class: "slim number"}, clock(one.run.began + one.time)), ...(single ? [] : [element("td", {class: "slim"}, one.run.name)]),
      element("td", {class: "number"}, one.step === null ? "–" : grouped(one.step)), element("td", {class: "slim"}, element("span", {class: `state ${kind}`}, eventName(one))),
      element("td", {class: "number"}, String(one.rank)), element("td", {class: "message"}, one.message, ...(more ? [element("small", {class: "faint"}, more)] : [])));
  }

  select.addEventListener("input", () => {
    room = AT_ONCE;
    show();
  });
  more.addEventListener("click", () => {
    room += AT_ONCE;
    show();
  });
  show();
  const columns = ["time, UTC", ...(single ? [] : ["run"]), "step", "event", "rank", "message"];
  return section("events", "Events", element("label", {class: "inline"}, "Shown", select), status, element("div", {class: "scroll"}, element("table", {class: "events"},
    element("thead", {}, element("tr", {}, ...columns.map((name) => element("th", {scope: "col", class: ["step", "rank"].includes(name) ? "number" : null}, name)))), body)), more);
}
