"use strict";
// Building blocks of all reports. Data are inserted as text, never as markup.

const content = JSON.parse(document.getElementById("data").textContent);
const page = document.getElementById("page");

function element(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

function shape(name, attributes = {}, ...children) {
  return fill(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes)) if (value !== null) node.setAttribute(key, value);
  node.append(...children);
  return node;
}

function number(value, digits = 4) {
  if (value === null) return "–";
  return String(Math.abs(value) >= 10 ** digits ? Math.round(value) : Number(value.toPrecision(digits)));
}

function percent(share) {
  return share === null ? "–" : (100 * share).toFixed(1) + " %";
}

function withUnit(value, unit) {
  return number(value) + (unit ? " " + unit : "");
}

// [start, end) of each span of consecutive values that satisfy `test`.
function spans(values, test) {
  const found = [];
  for (let i = 0; i < values.length; i++) {
    if (!test(values[i])) continue;
    const start = i;
    while (i < values.length && test(values[i])) i++;
    found.push([start, i]);
  }
  return found;
}

// rows: arrays of cells (text or nodes); columns: {name, number} or {name, bar}.
function table(caption, columns, rows) {
  const kind = (column) => column.number ? "number" : column.bar ? "bar" : null;
  const head = columns.map((column) => element("th", {scope: "col", class: kind(column)}, column.name));
  const body = rows.map((row) => element("tr", {class: row.first ? "first" : null}, ...row.map((cell, index) =>
    element(index ? "td" : "th", {scope: index ? null : "row", class: kind(columns[index])}, cell))));
  return element("div", {class: "scroll"}, element("table", {},
    ...(caption ? [element("caption", {}, caption)] : []),
    element("thead", {}, element("tr", {}, ...head)), element("tbody", {}, ...body)));
}

// A share as a bar, with a tick at the share of the blind model.
function bar(share, blind = null) {
  const drawing = shape("svg", {viewBox: "0 0 100 8", preserveAspectRatio: "none", "aria-hidden": "true"},
    shape("rect", {class: "track", width: 100, height: 8}),
    shape("rect", {class: "part", width: 100 * Math.min(1, Math.max(0, share || 0)), height: 8}));
  if (blind !== null) drawing.append(shape("line", {class: "blind", x1: 100 * blind, x2: 100 * blind, y1: 0, y2: 8}));
  return drawing;
}

function about(title) {
  document.title = title + Object.values(content.about).slice(0, 1).map((name) => " – " + name).join("");
  page.append(element("h1", {}, title), element("dl", {class: "about"},
    ...Object.entries(content.about).flatMap(([name, value]) => [element("dt", {}, name), element("dd", {}, value)])));
}
