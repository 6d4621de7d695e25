// The report of the document-QA family: metrics by evidence source, then every answer with its page.

const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const CONFIDENCES = [[0, "any"], [0.5, "at least 50 %"], [0.8, "at least 80 %"], [0.95, "at least 95 %"], [-0.5, "below 50 %"], [-0.8, "below 80 %"]];

function metricCell(cell, share) {
  if (!cell) return "–";
  const write = (value) => share ? percent(value) : number(value);
  if (cell.low === null) return write(cell.value);
  return element("span", {title: `95 % interval, of ${cell.questions} questions`}, write(cell.value),
    element("span", {class: "interval"}, share ? `${(100 * cell.low).toFixed(0)}–${(100 * cell.high).toFixed(0)} %` : `${number(cell.low)}–${number(cell.high)}`));
}

function sheet(record) {
  if (!record.pictures.length) return element("p", {class: "none"}, "(no page)");
  return element("div", {class: "sheet"}, ...record.pictures.map(({page: pageNumber, key}) => {
    const rests = record.evidence !== null && record.evidence.page === pageNumber, wanted = record.evidence_pages.includes(pageNumber);
    const says = [rests ? "the answer rests on the box" : null, wanted ? "the right evidence is here" : null].filter(Boolean).join("; ");
    const picture = element("div", {class: "picture"}, element("img", {src: content.pictures.uris[key], alt: `page ${pageNumber} of ${record.document}`, loading: "lazy"}));
    if (rests) {
      const [left, top, right, bottom] = record.evidence.box;
      picture.append(shape("svg", {viewBox: "0 0 1 1", preserveAspectRatio: "none", role: "img", "aria-label": `box around the ${record.evidence.kind} that the answer rests on`},
        shape("rect", {class: "box", x: left, y: top, width: right - left, height: bottom - top})));
    }
    return element("figure", {}, picture, element("figcaption", {}, `page ${pageNumber}` + (says ? `: ${says}` : "")));
  }));
}

function optionsList(record) {
  return element("ul", {class: "options"}, ...record.options.map((text, index) => {
    const chosen = index === record.chosen, isRight = index === record.right;
    const kind = [chosen ? "chosen" : null, isRight ? "true" : null, chosen && record.right !== null && !isRight ? "mistaken" : null].filter(Boolean).join(" ");
    const marks = [chosen ? "chosen" : null, isRight ? "right" : null].filter(Boolean).join(", ");
    return element("li", {class: kind || null}, element("span", {}, LETTERS[index] + "."), element("span", {}, text + (marks ? ` (${marks})` : "")),
      bar(record.shares[index]), element("span", {class: "share"}, percent(record.shares[index])));
  }));
}

function documentCard(record) {
  const name = `sample-${record.sample}`;
  const head = (...more) => element("header", {}, element("h3", {}, element("a", {href: "#" + name}, record.id || `Sample ${record.sample}`)), ...more);
  if (record.why !== undefined) return element("article", {class: "card", id: name, tabindex: -1}, head(element("span", {class: "badge wrong"}, "skipped")), element("p", {}, record.why));
  const graded = record.errors !== null;
  const badges = [element("span", {class: graded ? `badge ${wrong(record) ? "wrong" : "right"}` : "badge"}, graded ? wrong(record) ? "wrong" : "right" : "not graded"),
    ...(record.abstained ? [element("span", {class: "badge abstained"}, "abstained")] : [])];
  const texts = element("dl", {class: "texts"});
  const say = (title, ...nodes) => texts.append(element("dt", {}, title), element("dd", {}, ...nodes));
  say("Question", record.question);
  if (record.options.length) say("Options", optionsList(record));
  else {
    say(`Answer, confidence ${percent(record.confidence)}`, element("span", {class: graded ? wrong(record) ? "wrong-text" : "right-text" : null}, ...said(record.answer)));
    if (record.truth !== null) say("Right answer", [record.truth, ...record.also].join("  or  "));
  }
  if (record.blind !== null) say("Without the document" + (record.blind_errors === null ? "" : failed(record.blind_errors) ? " (wrong)" : " (right)"), element("span", {class: "faint"}, ...said(record.blind)));
  const list = (pages) => pages.length ? pages.join(", ") : "none";
  say("Pages", `shown: ${list(record.pages)}` + (record.ranked.length ? ` · best first: ${list(record.ranked)}` : "") + (record.evidence_pages.length ? ` · right: ${list(record.evidence_pages)}` : ""));
  const outcomes = Object.entries(record.measures).map(([what, points]) => `${what} ${number(points, 3)}`).join(" · ");
  return element("article", {class: "card", id: name, tabindex: -1},
    head(element("span", {class: "faint"}, [record.document, record.task].filter(Boolean).join(" · ")), ...badges),
    element("div", {class: "wide"}, sheet(record), element("div", {}, texts, ...(outcomes ? [element("p", {class: "outcomes"}, outcomes)] : []))));
}

function documentReport() {
  const records = content.records, sources = counted(records.map((record) => record.task));
  const texts = records.map((record) => [record.id, record.document, record.question, record.truth, record.answer, ...(record.options || []), record.why].filter(Boolean).join("\n").toLowerCase());
  about(content.title);
  if (content.metrics.length) page.append(element("h2", {}, "Metrics"),
    element("p", {class: "note"}, "By where the evidence lies, with 95 % intervals. Question only is the same model without the document: what a metric is worth is its distance from the baselines."),
    table(null, [{name: ""}, ...content.sources.map((name) => ({name, number: true}))],
      content.metrics.map((row) => [row.name, ...row.cells.map((cell) => metricCell(cell, row.percent))])));
  const graded = records.some((record) => record.errors !== null), blind = records.some((record) => record.blind_errors);
  const abstained = records.filter((record) => record.abstained).length;
  const form = element("form", {role: "search", "aria-label": "Answers to show"},
    ...(sources.length > 1 ? [choice("Evidence", "task", [["", `all (${records.length})`], ...sources])] : []),
    ...(graded ? [resultChoice(records, blind ? Object.keys(RESULTS) : ["all", "right", "wrong"])] : []),
    choice("Confidence", "confidence", CONFIDENCES),
    ...(abstained ? [choice("Abstained", "abstained", [["", "any"], ["yes", `yes (${abstained})`], ["no", `no (${records.length - abstained})`]])] : []),
    searchField("Text in question, answers or document"));
  page.append(element("h2", {}, "Answers"));
  if (content.pictures.missing) page.append(element("p", {class: "note"}, `The first ${Object.keys(content.pictures.uris).length} pages have their pictures; with all of them this file would be large.`));
  browse(records, form, (wanted) => {
    const words = wordsOf(wanted.get("text")), [, result] = RESULTS[wanted.get("result") || "all"], bound = Number(wanted.get("confidence"));
    const sure = (confidence) => bound === 0 || (confidence !== undefined && (bound > 0 ? confidence >= bound : confidence < -bound));
    return (record, i) => (!wanted.get("task") || record.task === wanted.get("task")) && result(record) && sure(record.confidence) &&
      (!wanted.get("abstained") || Boolean(record.abstained) === (wanted.get("abstained") === "yes")) && words.every((word) => texts[i].includes(word));
  }, (record) => documentCard(record), null);
}

documentReport();
