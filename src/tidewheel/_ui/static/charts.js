// Charts over time, and the time line of batches.

import uPlot from "./vendor/uplot-1.6.32.js";
import { h, s, css, put } from "./dom.js";
import { brief, clock, count, duration, moment, size } from "./format.js";

export const PHASES = ["offsets", "read", "tasks", "commit", "publish", "other"];

// A time on an axis, as exact as the distance to the next one asks for.
const moments = (value, values) => {
  const step = values.length > 1 ? values[1] - values[0] : 1;
  return step >= 86400 ? moment(value).slice(5, 10) : step < 60 ? clock(value) : step >= 43200 ? moment(value).slice(5, 16) : clock(value).slice(0, 5);
};

// A chart of one or more lines; `set` gives it new columns.
export function chart(title, lines, show) {
  const box = h("div", { class: "chart" });
  let plot = null, given = null;
  const draw = () => {
    plot?.destroy();
    const axis = { stroke: css("--quiet"), grid: { stroke: css("--line"), width: 1 }, ticks: { show: false } };
    plot = new uPlot({
      width: Math.max(box.clientWidth, 240), height: 170, legend: { live: true }, cursor: { y: false },
      tzDate: (ts) => uPlot.tzDate(new Date(ts * 1e3), "UTC"),
      axes: [{ ...axis, space: 80, values: (_, values) => values.map((value) => moments(value, values)) }, { ...axis, size: 84, values: (_, values) => values.map((value) => (value === null ? "" : show(value))) }],
      series: [{ label: "UTC", value: (_, value) => (value === null ? "–" : clock(value)) },
        ...lines.map(([label, color]) => ({ label, stroke: css(color), width: 1.6, spanGaps: true, points: { size: 4 }, value: (_, value) => (value === null || value === undefined ? "–" : show(value)) }))],
    }, given, box);
  };
  const redraw = () => given && box.isConnected && draw();
  new ResizeObserver(() => plot && box.clientWidth && plot.setSize({ width: box.clientWidth, height: 170 })).observe(box);
  document.addEventListener("theme", redraw);
  return {
    node: h("section", { class: "card" }, h("h2", {}, title), box),
    set(columns) { given = columns; if (plot) plot.setData(columns); else draw(); },
  };
}

export const lineCharts = () => {
  const rows = chart("rows a second", [["rows/s", "--accent"]], brief);
  const seconds = chart("seconds a batch", [["mean", "--commit"]], duration);
  const behind = chart("behind", [["rows", "--bad"], ["files", "--publish"]], brief);
  const data = chart("behind the time of day", [["clock of the data", "--publish"], ["oldest that waits", "--bad"]], duration);
  return {
    nodes: [rows.node, seconds.node, behind.node, data.node],
    set(c) {
      rows.set([c.at, c.rate]);
      seconds.set([c.at, c.seconds]);
      behind.set([c.at, c.rows_behind, c.files_behind]);
      data.set([c.at, c.clock_behind, c.seconds_behind]);
    },
  };
};

// Batches as bars, each divided into its phases, as high as it took long.
export class Timeline {
  constructor(choose) {
    this.svg = s("svg", { class: "timeline", role: "img", "aria-label": "the newest batches, each divided into its phases" });
    this.scale = h("span", { class: "quiet small" });
    this.choose = choose;
    this.bars = [];
    this.legend = h("div", { class: "legend" }, PHASES.map((phase) => {
      const mark = h("i", {});
      mark.style.background = `var(--${phase})`;
      return h("span", {}, mark, phase);
    }));
    this.node = h("section", { class: "card" }, h("h2", {}, "batches ", this.scale), this.svg, this.legend);
    new ResizeObserver(() => this.draw()).observe(this.svg);
  }

  set(bars) { this.bars = bars; this.draw(); }

  add(fresh) {
    const known = new Set(this.bars.map((bar) => `${bar.run} ${bar.sequence}`));
    this.set([...this.bars, ...fresh.filter((bar) => !known.has(`${bar.run} ${bar.sequence}`))].slice(-200));
  }

  draw() {
    const box = this.svg.getBoundingClientRect();
    if (!box.width) return;
    const width = Math.min(18, Math.max(3, box.width / Math.max(this.bars.length, 1)));
    const shown = this.bars.slice(-Math.floor(box.width / width));
    const times = shown.map((bar) => bar.seconds).sort((a, b) => a - b);
    const tallest = Math.max(times.at(-1) ?? 0, 0.001);
    // One batch that took very long, such as the first, must not make all others too small to be seen: it is cut.
    const most = Math.min(tallest, Math.max(4 * (times[Math.floor(times.length * 0.75)] ?? 0), 0.001));
    this.scale.textContent = shown.length ? `the longest took ${duration(tallest)}${most < tallest ? `; bars are cut at ${duration(most)}` : ""}` : "";
    this.svg.setAttribute("viewBox", `0 0 ${box.width} 190`);
    put(this.svg, shown.map((bar, at) => {
      let y = 186;
      const parts = PHASES.map((phase) => {
        const height = ((bar.phases[phase] ?? 0) / Math.max(most < bar.seconds ? bar.seconds : most, 0.001)) * 176;
        y -= height;
        const part = s("rect", { x: at * width + 0.5, y, width: Math.max(width - 1, 1), height });
        part.style.fill = `var(--${phase})`;
        return part;
      });
      const text = `commit ${bar.sequence}, ${bar.kind}${bar.node ? ` of ${bar.node}` : ""}: ${duration(bar.seconds)}, ${count(bar.rows)} rows, ${count(bar.changed)} keys changed, ${size(bar.delta_bytes)} written`;
      if (most < bar.seconds) parts.push(s("path", { class: "cut", d: `M${at * width - 1} 27L${(at + 1) * width + 1} 21` }));
      return s("g", { onclick: () => this.choose?.(bar) }, s("title", {}, text), s("rect", { x: at * width, y: 0, width, height: 190, fill: "transparent" }), ...parts);
    }));
  }
}

export function spark(values) {
  if (values.length < 2) return s("svg", { class: "spark" });
  const most = Math.max(...values, 1);
  const d = values.map((value, at) => `${at ? "L" : "M"}${((at / (values.length - 1)) * 108 + 1).toFixed(1)} ${(22 - (value / most) * 20).toFixed(1)}`).join("");
  return s("svg", { class: "spark", viewBox: "0 0 110 24", "aria-hidden": "true" }, s("path", { d }));
}
