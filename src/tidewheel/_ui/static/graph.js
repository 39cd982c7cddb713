// The graph of a job, drawn: dagre lays it out, the mouse and the arrow keys move it.

import { layout, Graph } from "./vendor/dagre-3.1.1.js";
import { s, put } from "./dom.js";
import { rate, brief, percent } from "./format.js";

const WIDTH = 150, HEIGHT = 54, CHARS = 20;
const cut = (text, chars = CHARS) => (text.length > chars ? `${text.slice(0, chars - 1)}…` : text);

export function place(steps, rankdir) {
  const graph = new Graph();
  graph.setGraph({ rankdir, nodesep: 16, ranksep: 30, marginx: 12, marginy: 12, ranker: steps.length > 300 ? "longest-path" : "network-simplex" });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const each of steps) graph.setNode(each.name, { width: WIDTH, height: HEIGHT });
  for (const each of steps) for (const [input] of each.inputs) if (graph.hasNode(input)) graph.setEdge(input, each.name);
  layout(graph);
  return graph;
}

// Draws into an <svg>; `update` changes the figures without laying it out again.
export class Drawing {
  constructor(svg, choose) {
    this.svg = svg;
    this.choose = choose;
    this.shape = null;
    this.view = { x: 0, y: 0, w: 100, h: 100 };
    svg.addEventListener("wheel", (event) => { event.preventDefault(); this.zoom(event.deltaY > 0 ? 1.15 : 1 / 1.15, event); }, { passive: false });
    svg.addEventListener("pointerdown", (event) => this.drag(event));
    svg.addEventListener("keydown", (event) => this.key(event));
  }

  // `hotKeys` have the step, the key and its share of the messages, the largest share first.
  update(steps, hotKeys) {
    const shape = JSON.stringify(steps.map((each) => [each.name, each.kind, each.inputs]));
    if (shape !== this.shape) this.draw(steps, shape);
    for (const each of steps) {
      const { node, title, figures, busy } = this.nodes.get(each.name);
      node.setAttribute("class", `node ${each.stateful ? "stateful" : ""} ${each.slowest ? "slowest" : ""} ${node.classList.contains("chosen") ? "chosen" : ""}`);
      const keys = each.keys === null ? "" : ` · ${brief(each.keys)} keys`;
      const hot = hotKeys.find((key) => key.step === each.name);
      figures.textContent = `${rate(each.in_rate)}${keys}${hot ? ` · ${cut(hot.key, 9)} ${percent(hot.share)}` : ""}`;
      figures.setAttribute("class", hot ? "kind hot" : "kind");
      title.textContent = `${each.name} (${each.kind})${hot ? `: the key ${hot.key} has ${percent(hot.share)} of its messages` : ""}`;
      busy.setAttribute("width", String(Math.min(1, each.busy) * (WIDTH - 2)));
    }
  }

  draw(steps, shape) {
    this.shape = shape;
    this.nodes = new Map();
    const graph = this.placed(steps);
    const kinds = new Map(steps.map((each) => [each.name, each.kind]));
    const arrow = s("marker", { id: "arrow", viewBox: "0 0 8 8", refX: "7", refY: "4", markerWidth: "7", markerHeight: "7", orient: "auto" }, s("path", { d: "M0 0L8 4L0 8z" }));
    const edges = graph.edges().map((edge) => {
      const points = graph.edge(edge).points;
      const d = points.map((p, at) => `${at ? "L" : "M"}${p.x.toFixed(1)} ${p.y.toFixed(1)}`).join("");
      return s("path", { class: `edge ${kinds.get(edge.v) === "key_by" ? "keyed" : ""}`, d, "marker-end": "url(#arrow)" });
    });
    const nodes = steps.map((each) => {
      const { x, y } = graph.node(each.name);
      const figures = s("text", { x: 10, y: 46, class: "kind" });
      const busy = s("rect", { class: "busy", x: 1, y: HEIGHT - 4, height: 3, width: 0, rx: 1 });
      busy.style.stroke = "none";
      const title = s("title", {});
      const node = s("g", { class: "node", transform: `translate(${x - WIDTH / 2} ${y - HEIGHT / 2})`, tabindex: "0", role: "button", "aria-label": `${each.name}, ${each.kind}` },
        title,
        s("rect", { width: WIDTH, height: HEIGHT, rx: 7 }),
        s("text", { x: 10, y: 18 }, cut(each.name)), s("text", { x: 10, y: 32, class: "kind" }, cut(each.kind)), figures, busy);
      const chosen = () => { this.mark(each.name); this.choose(each.name); };
      node.addEventListener("click", chosen);
      node.addEventListener("keydown", (event) => event.key === "Enter" && chosen());
      this.nodes.set(each.name, { node, title, figures, busy });
      return node;
    });
    put(this.svg, s("defs", {}, arrow), ...edges, ...nodes);
    const { width, height } = graph.graph();
    this.all = { w: Math.max(width || 0, 200), h: Math.max(height || 0, 80) };
    // As high as the graph needs at its size, within reason.
    const shown = this.all.h / Math.max(this.all.w / Math.max(this.svg.clientWidth, 1), 1);
    this.svg.style.height = `${Math.round(Math.min(Math.max(shown + 40, 220), this.highest()))}px`;
    this.fit();
  }

  highest() { return innerHeight * 0.62; }

  // From left to right, or from top to bottom where it can be larger that way. A large graph is laid out once: that takes long.
  placed(steps) {
    const across = place(steps, "LR");
    const shrunk = (graph) => Math.max(graph.graph().width / Math.max(this.svg.clientWidth, 1), graph.graph().height / this.highest(), 1);
    if (steps.length > 300 || shrunk(across) <= 1.05) return across;
    const down = place(steps, "TB");
    return shrunk(down) < shrunk(across) ? down : across;
  }

  mark(name) {
    for (const [key, { node }] of this.nodes) node.classList.toggle("chosen", key === name);
  }

  // All of it, but no larger than life.
  fit() {
    const box = this.svg.getBoundingClientRect();
    const scale = Math.max(this.all.w / Math.max(box.width, 1), this.all.h / Math.max(box.height, 1), 1);
    const w = box.width * scale, h = box.height * scale;
    this.view = { x: (this.all.w - w) / 2, y: (this.all.h - h) / 2, w: w || 100, h: h || 100 };
    this.show();
  }

  show() {
    const { x, y, w, h } = this.view;
    this.svg.setAttribute("viewBox", `${x} ${y} ${w} ${h}`);
  }

  zoom(by, event) {
    const box = this.svg.getBoundingClientRect();
    const at = event ? [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height] : [0.5, 0.5];
    const { x, y, w, h } = this.view;
    this.view = { x: x + w * at[0] * (1 - by), y: y + h * at[1] * (1 - by), w: w * by, h: h * by };
    this.show();
  }

  drag(event) {
    const box = this.svg.getBoundingClientRect();
    const from = { ...this.view, px: event.clientX, py: event.clientY };
    const move = (moved) => {
      this.view.x = from.x - ((moved.clientX - from.px) / box.width) * from.w;
      this.view.y = from.y - ((moved.clientY - from.py) / box.height) * from.h;
      this.show();
    };
    const end = () => { removeEventListener("pointermove", move); removeEventListener("pointerup", end); };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
  }

  key(event) {
    const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
    if (step) { this.view.x += step[0] * this.view.w * 0.1; this.view.y += step[1] * this.view.h * 0.1; this.show(); }
    else if (event.key === "+") this.zoom(1 / 1.2);
    else if (event.key === "-") this.zoom(1.2);
    else if (event.key === "0") this.fit();
    else return;
    event.preventDefault();
  }
}
