// A table whose columns can be sorted. The order is kept by name over refreshes.
import { h } from "./dom.js";
import { isNumber } from "./format.js";

const orders = new Map();

// columns: [{name, title?, cell(row), sort?(row) -> number | string | null, number?: true, down?: true}]; down: the largest first
// start: {column, down} the order before anybody clicks.
export function table(id, caption, columns, rows, { keyOf, start, redraw }) {
  const order = orders.get(id) ?? start;
  const by = order && columns.find((column) => column.name === order.column);
  const sorted = by?.sort ? [...rows].sort((a, b) => compare(by.sort(a), by.sort(b), order.down)) : rows;
  const click = (column) => () => {
    const down = order?.column === column.name ? !order.down : Boolean(column.number || column.down);
    orders.set(id, { column: column.name, down });
    redraw();
  };
  return h(
    "div", { class: "scroll", id: `${id}-scroll`, key: `${id}-scroll`, tabindex: "0", role: "region", "aria-label": caption },
    h(
      "table", { id },
      h("caption", { class: "unseen" }, caption),
      h("thead", {}, h("tr", {}, columns.map((column) => heading(column, order, click(column))))),
      h("tbody", {}, sorted.map((row) => h("tr", { key: keyOf(row) }, columns.map((column, i) => cell(column, row, i))))),
    ),
  );
}

function heading(column, order, onclick) {
  const mine = order?.column === column.name;
  const direction = mine ? (order.down ? "descending" : "ascending") : undefined;
  return h(
    "th", { scope: "col", class: column.number ? "number" : null, "aria-sort": direction, title: column.title },
    column.sort
      ? h("button", { type: "button", class: "sort", onclick }, column.name, h("span", { "aria-hidden": "true" }, mine ? (order.down ? " \u2193" : " \u2191") : ""))
      : column.name,
  );
}

function cell(column, row, index) {
  const content = column.cell(row);
  const attributes = { class: column.number ? "number" : null, "data-name": column.name };
  return index === 0 ? h("th", { scope: "row", ...attributes }, content) : h("td", attributes, content);
}

// What is not known comes last, whichever way.
function compare(a, b, down) {
  const known = (value) => value !== null && value !== undefined && (typeof value === "string" || isNumber(value));
  if (!known(a) || !known(b)) return known(b) - known(a);
  const difference = typeof a === "string" ? a.localeCompare(String(b)) : a - b;
  return down ? -difference : difference;
}
