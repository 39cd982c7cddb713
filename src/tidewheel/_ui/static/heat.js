// A heat map of shards on a canvas: thousands of cells are no thousands of elements.

import { h, css } from "./dom.js";
import { count, size } from "./format.js";

const mix = (from, to, part) => {
  const parse = (color) => [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
  const [a, b] = [parse(from), parse(to)];
  return `rgb(${a.map((value, at) => Math.round(value + (b[at] - value) * part)).join(" ")})`;
};

const HUES = [200, 30, 130, 280, 0, 60, 170, 320, 90, 240];

export class Heat {
  constructor() {
    this.canvas = h("canvas", { class: "heat", tabindex: "0", role: "img", "aria-label": "shards by how much they hold" });
    this.told = h("p", { class: "quiet" }, "point at a shard, or move with the arrow keys");
    this.node = h("section", { class: "card" }, this.canvas, this.told);
    this.canvas.addEventListener("mousemove", (event) => this.tell(this.at(event)));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(this.canvas);
    document.addEventListener("theme", () => this.draw());
    this.chosen = 0;
  }

  set(data, by) { this.data = data; this.by = by; this.draw(); }

  draw() {
    if (!this.data || !this.canvas.clientWidth) return;
    const n = this.data.n_shards, width = this.canvas.clientWidth;
    this.columns = Math.min(n, Math.max(8, Math.ceil(Math.sqrt(n * (width / 360)))));
    this.cell = Math.min(46, width / this.columns);
    const rows = Math.ceil(n / this.columns), ratio = devicePixelRatio || 1;
    this.canvas.style.height = `${rows * this.cell}px`;
    this.canvas.width = width * ratio;
    this.canvas.height = rows * this.cell * ratio;
    const pen = this.canvas.getContext("2d");
    pen.scale(ratio, ratio);
    const values = this.data[this.by], gap = this.cell > 8 ? 1.5 : 0.4;
    const holders = [...new Set(this.data.holders)].sort();
    const most = this.by === "holders" ? 1 : Math.max(...values, 1);
    for (let shard = 0; shard < n; shard += 1) {
      pen.fillStyle = this.by === "holders"
        ? values[shard] ? `hsl(${HUES[holders.indexOf(values[shard]) % HUES.length]} 55% 50%)` : css("--line")
        : mix(css("--heat-0"), css("--heat-1"), values[shard] / most);
      pen.fillRect((shard % this.columns) * this.cell, Math.floor(shard / this.columns) * this.cell, this.cell - gap, this.cell - gap);
    }
  }

  at(event) {
    const box = this.canvas.getBoundingClientRect();
    return Math.floor((event.clientY - box.top) / this.cell) * this.columns + Math.min(this.columns - 1, Math.floor((event.clientX - box.left) / this.cell));
  }

  tell(shard) {
    if (!this.data || shard < 0 || shard >= this.data.n_shards) return;
    this.chosen = shard;
    const holder = this.data.holders[shard];
    this.told.textContent = `shard ${shard}: ${count(this.data.keys[shard])} keys, ${size(this.data.bytes[shard])}${holder ? `, held by ${holder}` : ""}`;
  }

  key(event) {
    const step = { ArrowLeft: -1, ArrowRight: 1, ArrowUp: -this.columns, ArrowDown: this.columns }[event.key];
    if (!step) return;
    event.preventDefault();
    this.tell(Math.min(this.data.n_shards - 1, Math.max(0, this.chosen + step)));
  }
}
