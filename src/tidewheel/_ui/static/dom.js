// Elements made from data. Text is always text: nothing that comes from a job is ever read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(node, props, children) {
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "class") node.setAttribute("class", value);
    else if (name === "value") node.value = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const h = (tag, props, ...children) => fill(document.createElement(tag), props, children);
export const s = (tag, props, ...children) => fill(document.createElementNS(SVG, tag), props, children);

export function put(node, ...children) {
  node.replaceChildren(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A table; each column is [title, cell of a row, "n" for numbers, "w" for what must not wrap].
export function table(columns, rows, { link, empty = "nothing here yet" } = {}) {
  if (!rows.length) return h("p", { class: "quiet card" }, empty);
  const head = h("tr", {}, columns.map(([title, , kind]) => h("th", { class: kind, scope: "col" }, title)));
  const body = rows.map((row) => {
    const to = link?.(row);
    const go = to && (() => { location.hash = to; });
    return h(
      "tr",
      to ? { class: "link", tabindex: "0", onclick: go, onkeydown: (event) => event.key === "Enter" && go() } : {},
      columns.map(([, cell, kind]) => h("td", { class: kind }, cell(row) ?? "")),
    );
  });
  return h("div", { class: "card flush" }, h("div", { class: "scroll" }, h("table", {}, h("thead", {}, head), h("tbody", {}, body))));
}

export const facts = (pairs) =>
  h("div", { class: "facts" }, pairs.filter(Boolean).map(([name, value]) => h("div", { class: "fact" }, h("b", {}, value ?? "–"), h("span", {}, name))));

export const badge = (text, kind = text) => h("span", { class: `badge ${/^[a-z]+$/.test(kind) ? kind : ""}` }, text);

export function notice(text) {
  const line = h("div", {}, text);
  document.getElementById("notice").append(line);
  setTimeout(() => line.remove(), 6000);
}
