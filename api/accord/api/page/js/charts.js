// Charts on uPlot: one kind for everything, x against several series with error bars, bands and marks.
import uPlot from "/static/vendor/uplot/uPlot.esm.js";
import { h, island } from "./dom.js";
import { NOTHING, isNumber } from "./format.js";
import { drawDiagonal, drawErrors, drawMarks, drawSpans } from "./chart_marks.js";

const HEIGHT = 240;

// chart({key, title, note?, x: [..], series: [{label, values, low?, high?, tone, dash?, line?, points?, stepped?}], xLabel, yLabel,
//        time?, whole?, diagonal?, marks?: [{at, label, tone}], spans?: [{from, to}], xRange?, yRange?, digits?})
export function chart(spec) {
  return h(
    "figure", { class: "chart", key: spec.key, id: spec.key },
    h("figcaption", {}, h("strong", {}, spec.title), spec.note ? h("span", { class: "note" }, spec.note) : null),
    island(`${spec.key}-canvas`, create, spec, "div", { class: "plot", role: "img", "aria-label": `${spec.title}; the numbers follow below` }),
    spec.marks?.length ? legend(spec.marks) : null,
    numbers(spec),
  );
}

function legend(marks) {
  const kinds = [...new Map(marks.map((mark) => [mark.label, mark])).values()];
  return h("p", { class: "legend" }, kinds.map((mark) => h("span", { class: `mark ${mark.tone}` }, `${mark.label} ${mark.words}`)));
}

// The same as a table, for who cannot see the picture or wants the digits.
function numbers({ key, title, x, series, xLabel, time, digits = 4 }) {
  const text = (value) => (isNumber(value) ? String(Number(value.toFixed(digits))) : NOTHING);
  const rows = x.map((value, i) => [time ? new Date(value * 1000).toLocaleString() : text(value), ...series.map((one) => withBounds(one, i, text))]);
  return h(
    "details", { key: `${key}-numbers` },
    h("summary", {}, "Numbers"),
    h(
      "div", { class: "scroll", tabindex: "0", role: "region", "aria-label": `${title}: numbers` },
      h(
        "table", {},
        h("caption", { class: "unseen" }, title),
        h("thead", {}, h("tr", {}, [xLabel, ...series.map((one) => one.label)].map((name) => h("th", { scope: "col", class: "number" }, name)))),
        h("tbody", {}, rows.map((row) => h("tr", {}, row.map((value, i) => h(i ? "td" : "th", { class: "number", scope: i ? null : "row" }, value))))),
      ),
    ),
  );
}

function withBounds({ values, low, high }, i, text) {
  return isNumber(low?.[i]) && isNumber(high?.[i]) ? `${text(values[i])} (${text(low[i])} to ${text(high[i])})` : text(values[i]);
}

function create(node, first) {
  let spec = first;
  let plot = null;
  let shape = "";

  function draw() {
    const width = Math.floor(node.clientWidth);
    if (width < 50) return;
    const wanted = JSON.stringify([spec.series.map(({ label, tone, dash, line, points }) => [label, tone, dash, line, points]), spec.xLabel, spec.yLabel, spec.xRange, spec.yRange]);
    if (plot && shape === wanted) {
      if (plot.width !== width) plot.setSize({ width, height: HEIGHT });
      plot.setData(dataOf(spec));
      return;
    }
    plot?.destroy();
    shape = wanted;
    plot = new uPlot(options(spec, () => spec, width), dataOf(spec), node);
  }

  function recolour() {
    shape = "";
    draw();
  }

  const sizes = new ResizeObserver(() => requestAnimationFrame(draw));
  sizes.observe(node);
  window.addEventListener("accord-theme", recolour);
  draw();
  return {
    update(next) {
      const changed = JSON.stringify(next) !== JSON.stringify(spec);
      spec = next;
      if (changed) draw();
    },
    destroy() {
      sizes.disconnect();
      window.removeEventListener("accord-theme", recolour);
      plot?.destroy();
    },
  };
}

const dataOf = (spec) => [spec.x, ...spec.series.map((one) => one.values.map((value) => (isNumber(value) ? value : null)))];

function options(spec, current, width) {
  const css = getComputedStyle(document.documentElement);
  const colour = (name) => css.getPropertyValue(`--${name}`).trim();
  const font = `12px ${css.fontFamily}`;
  const axis = { stroke: colour("muted"), grid: { stroke: colour("grid"), width: 1 }, ticks: { stroke: colour("grid"), width: 1 }, font, labelFont: font, labelSize: 18 };
  const digits = spec.digits ?? 4;
  const shown = (_, value) => (isNumber(value) ? String(Number(value.toFixed(digits))) : NOTHING);
  return {
    width,
    height: HEIGHT,
    padding: [14, 12, 0, 0],
    cursor: { drag: { x: false, y: false }, points: { size: 8 } },
    legend: { live: width >= 420 },
    scales: { x: { time: Boolean(spec.time), range: range(current, "xRange", spec.whole ? 0.5 : 0) }, y: { range: range(current, "yRange", null) } },
    axes: [
      { ...axis, label: spec.xLabel, size: spec.time ? 48 : 34, ...(spec.whole ? { incrs: [1, 2, 5, 10, 20, 50, 100] } : {}), ...(spec.time ? { values: TIMES, space: 90 } : {}) },
      { ...axis, label: spec.yLabel, size: 56 },
    ],
    series: [
      { label: spec.xLabel, value: spec.time ? (_, value) => (isNumber(value) ? new Date(value * 1000).toLocaleString() : NOTHING) : shown },
      ...spec.series.map((one) => ({
        label: one.label,
        stroke: colour(one.tone),
        width: one.line === false ? 0 : 2,
        dash: one.dash,
        spanGaps: true,
        // What is known at a point holds for all that lies before it, back to the point before.
        ...(one.stepped ? { paths: uPlot.paths.stepped({ align: -1 }) } : {}),
        points: { show: one.points ?? true, size: 7, fill: one.hollow ? colour("surface") : colour(one.tone), stroke: colour(one.tone), width: 2 },
        value: shown,
      })),
    ],
    hooks: {
      drawAxes: [(plot) => drawSpans(plot, current().spans, colour), (plot) => current().diagonal && drawDiagonal(plot, colour)],
      draw: [(plot) => drawErrors(plot, current().series, colour), (plot) => drawMarks(plot, current().marks, colour, font)],
    },
  };
}

const TIMES = [
  [86400, "{YYYY}-{MM}-{DD}", null, null, null, null, null, null, 1],
  [3600, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
  [60, "{HH}:{mm}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
  [1, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
  [0.001, "{HH}:{mm}:{ss}", "\n{YYYY}-{MM}-{DD}", null, null, null, null, null, 1],
];

// What the spec says, else from the data: x exactly (or with room beside whole numbers), y with error bars inside.
function range(current, name, room) {
  return (_, low, high) => {
    const spec = current();
    if (spec[name]) return spec[name];
    if (room !== null) {
      const beside = low === high ? 1 : room;
      return [low - beside, high + beside];
    }
    const all = spec.series.flatMap((one) => [...one.values, ...(one.low ?? []), ...(one.high ?? [])]).filter(isNumber);
    if (!all.length) return [0, 1];
    const [least, most] = [Math.min(...all), Math.max(...all)];
    const margin = 0.08 * (most - least) || 0.1;
    return [spec.fromZero ? Math.min(0, least) : least - margin, most + margin];
  };
}
