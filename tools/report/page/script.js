// Draws the charts and tables of `lmc report` from the JSON in the element "data". Texts of runs never become HTML.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const runs = data.runs, SVG = "http://www.w3.org/2000/svg", COLOURS = 8;
const PARTS = { compute: "computing", data: "waiting for data", validation: "validation", save: "saving" };

// ---- Small helpers -------------------------------------------------------------------------------------------------

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {}))
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) node.setAttribute(key, value === true ? "" : value);
  for (const child of children.flat())
    if (child !== null && child !== undefined) node.append(child);
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

const trim = (text) => text.includes(".") ? text.replace(/\.?0+$/, "") : text;
function number(value, digits = 4) {
  if (value === null || value === undefined || !isFinite(value)) return "?";
  const size = Math.abs(value);
  if (size !== 0 && (size < 0.00995 || size >= 1e7)) {
    const [mantissa, exponent] = value.toExponential(digits - 1).split("e");
    return trim(mantissa) + "e" + exponent.replace("+", "");
  }
  return trim(size >= 10 ** digits ? value.toFixed(0) : value.toPrecision(digits));
}
function si(value, digits = 4) {
  for (const [unit, name] of [[1e12, "T"], [1e9, "B"], [1e6, "M"], [1e3, "K"]])
    if (Math.abs(value) >= unit) return number(value / unit, digits) + " " + name;
  return number(value, digits);
}
const grouped = (value) => Math.round(value).toString().replace(/\B(?=(\d{3})+$)/g, ",");
const percent = (value) => value === null ? "?" : value > 0 && value < 1e-4 ? "<0.01%" : number(100 * value, 3) + "%";
function bytes(value) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [2 ** 10, "KiB"]])
    if (value >= unit) return number(value / unit, 3) + " " + name;
  return number(value) + " B";
}
function seconds(value) {
  if (value === null || value === undefined) return "?";
  if (value >= 7200) return number(value / 3600, 4) + " h";
  if (value >= 120) return number(value / 60, 3) + " min";
  return value >= 1 || value === 0 ? number(value, 3) + " s" : number(value * 1000, 3) + " ms";
}
const localTime = (text) => {
  const time = new Date(text);
  return isNaN(time) ? String(text) : time.toLocaleString();
};

// ---- The data ------------------------------------------------------------------------------------------------------

// A position in the data is the difference from the position before it.
function decode(line) {
  const sums = (list, scale) => { let sum = 0; return Float64Array.from(list, (d) => (sum += d) * scale); };
  return { steps: sums(line.s, 1), tokens: sums(line.t, 1), hours: sums(line.m, 1 / 3.6e6), y: line.y };
}
for (const run of runs) {
  for (const name of Object.keys(run.lines)) run.lines[name] = decode(run.lines[name]);
  run.size = run.mean_loss.size;
  run.mean_loss = decode(run.mean_loss);
  run.validation = run.validation.map((line) => ({ ...decode(line), set: line.set }));
  run.parts = Object.assign(decode({ ...run.parts, y: [] }), run.parts);
  for (const event of run.events)
    event.x = { steps: event.at[0], tokens: event.at[1], hours: event.at[2] / 3.6e6 };
  run.end = { steps: run.facts.steps, tokens: run.facts.tokens, hours: run.facts.seconds / 3600 };
}
const sets = [...new Set(runs.flatMap((run) => run.validation.map((line) => line.set)))]; // a set has one dash in all runs
const curves = data.curves.map((line) => ({ ...decode(line), name: line.name }));
const colourOf = (i) => `var(--c${i % COLOURS})`;
const dashOf = (i) => ["", "9 3", "2 3", "9 3 2 3"][Math.floor(i / COLOURS) % 4];

// Returns the exponential mean of losses, in which the newest step has the weight 1/w. A point stands for `size` steps.
function smoothed(run) {
  const w = state.smooth === "auto" ? Math.max(1, run.facts.steps / 100) : Number(state.smooth);
  if (!(w > 0)) return null;
  const keep = w > 1 ? (1 - 1 / w) ** run.size : 0;
  let sum = 0, weight = 0;
  const y = run.mean_loss.y.map((value) => {
    if (value === null) return null;
    sum = keep * sum + (1 - keep) * value;
    weight = keep * weight + (1 - keep);
    return sum / weight;
  });
  return { ...run.mean_loss, y };
}

// ---- What the reader has chosen, which is kept in the address ------------------------------------------------------

const defaults = { by: data.by, scale: "linear", span: "all", smooth: "auto", hide: "", area: "0", sort: "model",
  rank: runs.every((run) => run.validation.length) ? "validation" : "loss", open: "", from: "", to: "" };
const state = { ...defaults };
for (const [key, value] of new URLSearchParams(location.hash.slice(1))) if (key in state) state[key] = value;
if (!["tokens", "hours", "steps"].includes(state.by)) state.by = data.by;
if (!runs[state.area]) state.area = "0";
const hidden = new Set(state.hide.split(".").filter((text) => text !== "").map(Number));
const opened = new Set(state.open.split(".").filter((text) => text !== ""));
function remember() {
  state.hide = [...hidden].join(".");
  state.open = [...opened].join(".");
  const changed = Object.entries(state).filter(([key, value]) => value !== defaults[key]);
  try { history.replaceState(null, "", "#" + new URLSearchParams(changed)); } catch (error) { /* only not remembered */ }
}
function set(changes) {
  Object.assign(state, changes);
  remember();
  drawAll();
}
const shownRuns = () => runs.map((run, i) => ({ run, i })).filter(({ i }) => !hidden.has(i));
const zoom = () => {
  const from = Number(state.from), to = Number(state.to);
  return state.to !== "" && to > from ? [from, to] : null;
};

// ---- Axes ----------------------------------------------------------------------------------------------------------

function niceStep(span, count) {
  const rough = span / count, power = 10 ** Math.floor(Math.log10(rough));
  return power * ([1, 2, 5].find((f) => f * power >= rough) || 10);
}
function linearTicks(from, to, count) {
  if (!(to > from)) return [from];
  const step = niceStep(to - from, count), ticks = [];
  for (let i = Math.ceil(from / step - 1e-9); i * step <= to + step * 1e-9; ++i) ticks.push(i * step);
  return ticks;
}
function logTicks(from, to, count) {
  const decades = Math.log10(to / from);
  if (decades < 0.7) return linearTicks(from, to, count).filter((v) => v > 0);
  const stride = Math.max(1, Math.ceil(decades / count));
  const factors = decades > 2.5 ? [1] : [1, 2, 5], ticks = [];
  for (let e = Math.floor(Math.log10(from)); e <= Math.ceil(Math.log10(to)); ++e)
    if (e % stride === 0)
      for (const f of factors) if (f * 10 ** e >= from * 0.999 && f * 10 ** e <= to * 1.001) ticks.push(f * 10 ** e);
  return ticks;
}
// Returns the unit of the x axis. `factor` multiplies values; `text` prints them.
function xUnit(most) {
  if (state.by === "tokens") return { factor: 1, title: "tokens", text: (v) => si(v) };
  if (state.by === "steps") return { factor: 1, title: "steps", text: (v) => v >= 1e5 ? si(v) : grouped(v) };
  if (most < 0.05) return { factor: 3600, title: "seconds of training", text: (v) => number(v) };
  if (most < 2) return { factor: 60, title: "minutes of training", text: (v) => number(v) };
  return { factor: 1, title: "hours of training", text: (v) => number(v) };
}

// ---- Marks of events -----------------------------------------------------------------------------------------------

const MARKS = {
  start: ["start", "M-4-5L5 0L-4 5Z", true], phase: ["phase", "M-2-5H2V5H-2Z", true], change: ["change", "M0-5L5 0L0 5L-5 0Z", true],
  plan: ["other plan", "M-4-4H4V4H-4Z", false], warning: ["warning", "M0-5L5 4H-5Z", true], slow_rank: ["slow rank", "M-4 0A4 4 0 1 0 4 0A4 4 0 1 0-4 0Z", true],
  checkpoint: ["checkpoint", "M0-3V3", false], export: ["export", "M-3.5 0A3.5 3.5 0 1 0 3.5 0A3.5 3.5 0 1 0-3.5 0Z", false],
  rewind: ["rewind", "M4-5L-5 0L4 5Z", true], diverged: ["diverged", "M-4-4L4 4M4-4L-4 4", false], exit: ["exit", "M-4-4H4V4H-4Z", true],
};
const LINED = new Set(["start", "phase", "change", "warning", "rewind", "diverged", "exit"]);
const isMarked = (event) => !event.taken_back && event.kind in MARKS;
const markPath = (kind, colour, at) => svg("path", {
  d: MARKS[kind][1], transform: at, fill: MARKS[kind][2] ? colour : "none", stroke: colour,
  "stroke-width": kind === "diverged" ? 2.2 : 1.4 });

// ---- Charts --------------------------------------------------------------------------------------------------------

const charts = [];
let lastTouched = 0; // the time at which the reader last pointed at a chart

class Chart {
  // spec: title, note, height, lines(run, i) -> [{label, line, width, opacity, dash, dots}], text(value); optional: log(),
  // zero, stack, events, curves.
  constructor(spec, parent, extra) {
    this.spec = spec;
    this.id = "clip" + charts.length;
    this.box = el("div", { class: "chart" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.box.append(this.tip);
    this.key = el("div", { class: "key" });
    parent.append(el("figure", { class: "panel" + (extra ? " " + extra : "") }, el("h2", {}, spec.title),
      spec.note ? el("p", { class: "note" }, spec.note) : null, spec.head || null, this.box, this.key));
    this.box.addEventListener("pointermove", (event) => this.point(event));
    this.box.addEventListener("pointerdown", (event) => this.press(event));
    this.box.addEventListener("pointerup", (event) => this.release(event));
    this.box.addEventListener("pointerleave", () => { this.drag = null; hideAll(); });
    this.box.addEventListener("dblclick", () => set({ from: "", to: "" }));
    charts.push(this);
  }

  domain() {
    const range = zoom();
    if (range) return range;
    const ends = shownRuns().map(({ run }) => run.end[state.by]);
    if (ends.length === 0 && this.spec.curves && state.by === "tokens")
      ends.push(...curves.map((curve) => curve.tokens[curve.tokens.length - 1]));
    return [0, Math.max(...ends, 0) || 1];
  }

  gather() {
    const lines = [];
    for (const { run, i } of shownRuns())
      if (!this.spec.stack || i === Number(state.area))
        for (const line of this.spec.lines(run, i))
          if (line.line && line.line.y.length) lines.push({ ...line, run, i, colour: line.colour || colourOf(i), x: line.line[state.by], y: line.line.y });
    if (this.spec.curves && state.by === "tokens")
      curves.forEach((curve, k) => lines.push({ label: curve.name, curve: true, colour: "var(--soft)", x: curve.tokens, y: curve.y,
        width: 2, opacity: 1, dash: ["7 3 2 3", "2 4", "12 4"][k % 3] }));
    return lines;
  }

  draw() {
    const spec = this.spec, width = this.box.clientWidth || 600, log = spec.log ? spec.log() : false;
    const lines = this.lines = this.gather(), [x0, x1] = this.domain(), unit = xUnit(x1);
    const rows = spec.events ? shownRuns().filter(({ run }) => run.events.some(isMarked)) : [];
    const left = 58, right = 14, top = 8, plot = spec.height, height = top + plot + 36 + 18 * rows.length;
    // The y range has all values in the x range.
    let low = Infinity, high = -Infinity;
    const from = state.span === "tail" && !zoom() && !spec.zero ? x0 + 0.1 * (x1 - x0) : x0;
    for (const { x, y } of lines)
      for (let k = 0; k < x.length; ++k) {
        if (x[k] < from || x[k] > x1 || y[k] === null || (log && y[k] <= 0)) continue;
        low = Math.min(low, y[k]);
        high = Math.max(high, y[k]);
      }
    const empty = !(high >= low);
    if (empty) { low = log ? 0.1 : 0; high = 1; }
    if (spec.zero && !log) low = Math.min(0, low);
    if (high === low) { const pad = Math.abs(high) * 0.05 || 1; high += pad; if (!spec.zero || low !== 0) low -= log ? 0 : pad; }
    if (log) { const pad = (high / low) ** 0.05; low /= pad; high *= pad; }
    else { const pad = 0.05 * (high - low); high += pad; if (!(spec.zero && low === 0)) low -= pad; }
    const sx = this.sx = (v) => left + (v - x0) / (x1 - x0) * (width - left - right);
    this.ix = (p) => x0 + (p - left) / (width - left - right) * (x1 - x0);
    const sy = log ? (v) => top + plot * (1 - Math.log(v / low) / Math.log(high / low)) : (v) => top + plot * (1 - (v - low) / (high - low));
    // Ticks of bytes are round numbers of KiB, MiB or GiB.
    const scale = spec.binary ? 1024 ** Math.max(0, Math.floor(Math.log2(Math.max(1, high)) / 10)) : 1;
    this.frame = { left, right: width - right, top, bottom: top + plot, x0, x1, width };

    const root = svg("svg", { class: "plot", viewBox: `0 0 ${width} ${height}`, height, role: "img",
      "aria-label": `${spec.title} over ${unit.title}` });
    root.append(svg("clipPath", { id: this.id }, svg("rect", { x: left, y: top - 2, width: Math.max(0, width - left - right), height: plot + 4 })));
    for (const v of log ? logTicks(low, high, 6) : linearTicks(low / scale, high / scale, plot > 260 ? 7 : 5).map((v) => v * scale)) {
      const y = sy(v);
      root.append(svg("path", { class: "gridline", d: `M${left} ${y.toFixed(1)}H${width - right}` }),
        svg("text", { x: left - 7, y: (y + 4).toFixed(1), "text-anchor": "end" }, spec.text(v)));
    }
    for (const v of linearTicks(x0 * unit.factor, x1 * unit.factor, Math.max(2, Math.floor(width / 110)))) {
      const x = sx(v / unit.factor);
      root.append(svg("path", { class: "base", d: `M${x.toFixed(1)} ${top + plot}v4` }),
        svg("text", { x: x.toFixed(1), y: top + plot + 18, "text-anchor": x > width - right - 24 ? "end" : "middle" }, unit.text(v)));
    }
    root.append(svg("path", { class: "base", d: `M${left} ${top + plot}H${width - right}` }),
      svg("text", { x: width - right, y: top + plot + 33, "text-anchor": "end" }, unit.title));
    if (empty) root.append(svg("text", { x: (left + width - right) / 2, y: top + plot / 2, "text-anchor": "middle" }, "no values"));

    const clipped = svg("g", { "clip-path": `url(#${this.id})` });
    this.marks = [];
    rows.forEach(({ run, i }, row) => {
      const y = top + plot + 44 + 18 * row, counts = {};
      root.append(svg("path", { class: "gridline", d: `M${left} ${y}H${width - right}` }),
        svg("path", { d: `M${left - 44} ${y}h30`, stroke: colourOf(i), "stroke-width": 3, "stroke-dasharray": dashOf(i) }));
      const shown = run.events.filter((event) => isMarked(event) && event.x[state.by] >= x0 && event.x[state.by] <= x1);
      for (const event of shown) counts[event.kind] = (counts[event.kind] || 0) + 1;
      for (const event of shown) {
        const x = sx(event.x[state.by]);
        // Too many lines would hide the curves.
        if (LINED.has(event.kind) && counts[event.kind] <= 40 && event.at[0] > 0)
          clipped.append(svg("path", { d: `M${x.toFixed(1)} ${top}V${top + plot}`, stroke: colourOf(i), opacity: .3, "stroke-dasharray": "2 4" }));
        root.append(markPath(event.kind, colourOf(i), `translate(${x.toFixed(1)} ${y})`));
        this.marks.push({ x, y, event, run });
      }
    });
    if (spec.stack) this.areas(clipped, lines, sx, sy);
    else
      for (const line of lines) {
        let path = "", pen = "M";
        for (let k = 0; k < line.x.length; ++k) {
          if (line.y[k] === null || (log && line.y[k] <= 0)) { pen = "M"; continue; }
          path += `${pen}${sx(line.x[k]).toFixed(1)} ${sy(line.y[k]).toFixed(1)}`;
          pen = "L";
        }
        clipped.append(svg("path", { class: "line", d: path, stroke: line.colour, "stroke-width": line.width, opacity: line.opacity, "stroke-dasharray": line.dash }));
        if (line.dots && line.x.length <= 60)
          for (let k = 0; k < line.x.length; ++k)
            if (line.y[k] !== null && !(log && line.y[k] <= 0))
              clipped.append(svg("circle", { cx: sx(line.x[k]).toFixed(1), cy: sy(line.y[k]).toFixed(1), r: 2.4, fill: line.colour }));
      }
    root.append(clipped);
    this.cross = svg("path", { class: "cross", visibility: "hidden" });
    this.brush = svg("rect", { class: "brush", y: top, height: plot, visibility: "hidden" });
    root.append(this.brush, this.cross);
    if (this.root) this.root.remove();
    this.box.prepend(this.root = root);
    this.drawKey(rows);
  }

  // Stacks the lines. A value is the mean of the steps up to its position.
  areas(parent, lines, sx, sy) {
    if (!lines.length) return;
    const x = lines[0].x, below = new Float64Array(x.length);
    for (const line of lines) {
      let up = "", down = "";
      for (let k = 0; k < x.length; ++k) {
        const from = sx(k ? x[k - 1] : 0).toFixed(1), to = sx(x[k]).toFixed(1);
        up += `${k ? "L" : "M"}${from} ${sy(below[k] + line.part[k]).toFixed(1)}L${to} ${sy(below[k] + line.part[k]).toFixed(1)}`;
        down = `L${to} ${sy(below[k]).toFixed(1)}L${from} ${sy(below[k]).toFixed(1)}` + down;
      }
      parent.append(svg("path", { d: up + down + "Z", fill: line.colour }));
      for (let k = 0; k < x.length; ++k) below[k] += line.part[k];
    }
  }

  drawKey(rows) {
    const entries = [], seen = new Set();
    const sample = (attributes) => svg("svg", { width: 26, height: 10 }, svg("path", { class: "line", d: "M1 5H25", ...attributes }));
    for (const line of this.lines) {
      if (!line.label || seen.has(line.label)) continue;
      seen.add(line.label);
      entries.push(el("span", {}, this.spec.stack ? svg("svg", { width: 12, height: 12 }, svg("rect", { width: 12, height: 12, rx: 2, fill: line.colour }))
        : sample({ stroke: line.curve ? line.colour : "var(--soft)", "stroke-width": line.width, opacity: line.curve ? 1 : Math.max(line.opacity, .5), "stroke-dasharray": line.dash }), line.label));
    }
    const kinds = new Set();
    for (const { run } of rows) for (const event of run.events) if (isMarked(event)) kinds.add(event.kind);
    for (const kind of Object.keys(MARKS))
      if (kinds.has(kind)) entries.push(el("span", {}, svg("svg", { width: 14, height: 14 }, markPath(kind, "var(--soft)", "translate(7 7)")), MARKS[kind][0]));
    // The title explains a single line.
    this.key.replaceChildren(...(entries.length > 1 ? entries : []));
  }

  at(event) {
    const rect = this.box.getBoundingClientRect();
    return [event.clientX - rect.left, event.clientY - rect.top];
  }
  press(event) {
    if (event.pointerType === "mouse" && event.button === 0) this.drag = this.at(event)[0];
    this.point(event);
  }
  release(event) {
    const start = this.drag, end = this.at(event)[0];
    this.drag = null;
    this.brush.setAttribute("visibility", "hidden");
    if (start !== null && start !== undefined && Math.abs(end - start) > 8) {
      const { x0, x1 } = this.frame, [a, b] = [start, end].sort((p, q) => p - q).map((p) => Math.min(x1, Math.max(x0, this.ix(p))));
      if (b > a) set({ from: String(a), to: String(b) });
    }
  }

  point(event) {
    lastTouched = Date.now();
    const [px] = this.at(event), { left, right, x0, x1 } = this.frame;
    if (px < left - 6 || px > right + 6) return hideAll();
    if (this.drag !== null && this.drag !== undefined && Math.abs(px - this.drag) > 4) {
      const a = Math.max(left, Math.min(px, this.drag)), b = Math.min(right, Math.max(px, this.drag));
      fill(this.brush, { x: a, width: Math.max(0, b - a), visibility: "visible" }, []);
    }
    const x = Math.min(x1, Math.max(x0, this.ix(px)));
    for (const chart of charts) chart.showCross(x, chart === this);
    this.readOut(x, px);
  }

  showCross(x, own) {
    const { x0, x1, top, bottom } = this.frame;
    if (!own) this.tip.hidden = true;
    if (x < x0 || x > x1) return;
    fill(this.cross, { d: `M${this.sx(x).toFixed(1)} ${top}V${bottom}`, visibility: "visible" }, []);
  }

  readOut(x, px) {
    const rows = [], { width } = this.frame;
    let place = null;
    for (const line of this.lines) {
      const k = nearest(line.x, line.y, x);
      if (k < 0 || x > line.x[line.x.length - 1] + (this.frame.x1 - this.frame.x0) * .01) continue;
      if (!line.curve && place === null) place = line.line.steps[k];
      rows.push(el("tr", {}, el("td", {}, swatch(line)), el("td", { class: "name" }, line.curve ? line.label : line.run.name),
        el("td", { class: "n" }, this.spec.text(line.part ? line.part[k] : line.y[k], true)), el("td", {}, el("span", { class: "value" }, line.curve ? "" : line.label || "")),
        el("td", { class: "n" }, line.curve ? "" : "step " + grouped(line.line.steps[k]))));
    }
    const near = this.marks.filter((mark) => Math.abs(mark.x - px) < 6).slice(0, 4);
    if (!rows.length && !near.length) { this.tip.hidden = true; return; }
    const unit = xUnit(this.frame.x1);
    this.tip.replaceChildren(el("b", {}, unit.text(x * unit.factor) + " " + unit.title), el("table", {}, el("tbody", {}, rows.slice(0, 16))),
      ...near.map(({ event, run }) => el("div", {}, `${run.name}: ${MARKS[event.kind][0]}${event.step === null ? "" : " at step " + grouped(event.step)}: ${event.text.slice(0, 160)}`)));
    this.tip.hidden = false;
    const own = this.tip.offsetWidth, side = px + 16 + own < width ? px + 16 : px - 16 - own;
    this.tip.style.left = Math.max(0, Math.min(side, width - own)) + "px";
  }
}

function hideAll() {
  for (const chart of charts) {
    chart.tip.hidden = true;
    if (chart.cross) chart.cross.setAttribute("visibility", "hidden");
    if (chart.brush) chart.brush.setAttribute("visibility", "hidden");
  }
}
// Returns the index of the value that is nearest to x; -1 without values.
function nearest(xs, ys, x) {
  let low = 0, high = xs.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (xs[middle] < x) low = middle + 1; else high = middle;
  }
  if (low > 0 && Math.abs(xs[low - 1] - x) <= Math.abs(xs[low] - x)) --low;
  while (low > 0 && ys[low] === null) --low;
  return xs.length && ys[low] !== null ? low : -1;
}
function swatch(line) {
  if (line.part) return svg("svg", { class: "swatch", viewBox: "0 0 20 10" }, svg("rect", { x: 4, width: 12, height: 10, rx: 2, fill: line.colour }));
  return svg("svg", { class: "swatch", viewBox: "0 0 20 10" }, svg("path", { d: "M0 5H20", stroke: line.colour, "stroke-width": line.width > 1.5 ? 3 : 1.5, "stroke-dasharray": line.dash }));
}
const runSwatch = (i) => svg("svg", { class: "swatch", viewBox: "0 0 20 10", "aria-hidden": "true" },
  svg("path", { d: "M0 5H20", stroke: colourOf(i), "stroke-width": 4, "stroke-dasharray": dashOf(i) }));

// ---- The bar of choices --------------------------------------------------------------------------------------------

function choice(label, key, options) {
  const buttons = el("span", { role: "group", "aria-label": label });
  for (const [value, text] of options)
    buttons.append(el("button", { type: "button", "data-value": value, onclick: () =>
      set(key === "by" ? { by: value, from: "", to: "" } : { [key]: value }) }, text));
  const box = el("span", { class: "choice" }, el("span", {}, label), buttons);
  box.update = () => { for (const button of buttons.children) button.setAttribute("aria-pressed", button.dataset.value === state[key]); };
  choices.push(box);
  return box;
}
const choices = [];
const bar = document.getElementById("bar"), main = document.getElementById("main");
bar.append(choice("over", "by", [["tokens", "tokens"], ["hours", "hours"], ["steps", "steps"]]),
  choice("loss", "scale", [["linear", "linear"], ["log", "log"]]),
  choice("range", "span", [["all", "all"], ["tail", "without start"]]),
  choice("smooth", "smooth", [["0", "off"], ["auto", "auto"], ["100", "100"], ["1000", "1000"]]));
const unzoom = el("button", { type: "button", class: "unzoom", onclick: () => set({ from: "", to: "" }) }, "show all");
bar.append(el("span", { class: "choice" }, el("span", {}), el("span", {}, unzoom)));
const chips = el("div", { class: "runs", role: "group", "aria-label": "runs" });
runs.forEach((run, i) => chips.append(el("button", { type: "button", title: run.folder, onclick: () => {
  if (hidden.has(i)) hidden.delete(i); else hidden.add(i);
  set({});
} }, runSwatch(i), el("span", { class: "name" }, run.name))));
bar.append(chips);

// ---- The panels ----------------------------------------------------------------------------------------------------

const line = (name, more) => (run) => [{ label: "", line: run.lines[name], width: 1.4, opacity: .9, ...more }];
new Chart({
  title: "Loss", height: innerWidth < 600 ? 260 : 400, events: true, curves: true,
  note: "Nats per token. The thin line has the minimum and the maximum of neighbouring steps, the thick one is their running mean. Drag to zoom, double-click to show all.",
  log: () => state.scale === "log", text: (v, exact) => number(v, exact ? 5 : 4),
  lines: (run, i) => {
    const mean = smoothed(run), result = [{ label: "each step", line: run.lines.loss, width: 1, opacity: mean ? .32 : .9 }];
    if (mean) result.push({ label: "mean", line: mean, width: 2.2, opacity: 1, dash: dashOf(i) });
    for (const set of run.validation) result.push({ label: "validation" + (set.set ? " " + set.set : ""), line: set, width: 1.7, opacity: 1, dots: true,
      dash: ["6 3", "2 3", "10 3 2 3", "4 2 1 2"][sets.indexOf(set.set) % 4] });
    return result;
  },
}, main);

const factsPanel = el("section", { class: "panel" }), timePanel = el("section", { class: "panel" });
main.append(el("div", { class: "grid" + (runs.length > 2 ? " one" : "") }, factsPanel, timePanel));
const grid = el("div", { class: "grid" });
main.append(grid);
const exponent = (v) => number(v, 3);
new Chart({ title: "Learning rate", height: 190, zero: true, text: exponent, lines: line("lr") }, grid);
new Chart({ title: "Gradient norm", note: "Before clipping; logarithmic.", height: 172, log: () => true, text: exponent, lines: line("grad_norm", { width: 1 }) }, grid);
new Chart({ title: "Update ratio", note: "Norm of the update / norm of the parameters; logarithmic.", height: 172, log: () => true, text: exponent, lines: line("update_ratio", { width: 1 }) }, grid);
new Chart({ title: "Tokens/s", height: 190, zero: true, text: (v) => si(v, 3), lines: line("tokens_per_second", { width: 1 }) }, grid);
new Chart({ title: "MFU", note: "Causal: only unmasked attention scores count. Full: all do.", height: 172, zero: true, text: (v) => percent(v),
  lines: (run) => [{ label: "causal", line: run.lines.mfu_causal, width: 1.2, opacity: 1 }, { label: "full", line: run.lines.mfu_full, width: 1.2, opacity: .75, dash: "3 3" }] }, grid);
new Chart({ title: "Seconds of a step", note: "Without validation and saves; logarithmic.", height: 172, log: () => true, text: seconds, lines: line("step_seconds", { width: 1 }) }, grid);
const areaChoice = el("span", {});
new Chart({ title: "Where a step's time goes", head: areaChoice, note: runs.length > 1 ? "Means of neighbouring steps of one run." : "Means of neighbouring steps.", height: 172, zero: true, stack: true, text: seconds,
  lines: (run) => {
    const sums = run.parts[data.step_parts[0]].map(() => 0);
    return data.step_parts.map((part) => ({ label: PARTS[part], part: run.parts[part], colour: `var(--${part})`, width: 3,
      line: { steps: run.parts.steps, tokens: run.parts.tokens, hours: run.parts.hours, y: run.parts[part].map((v, k) => sums[k] += v) } }));
  } }, grid);
new Chart({ title: "Device memory", height: 190, zero: true, binary: true, text: bytes, lines: line("memory_bytes") }, grid);

if (runs.length > 1) {
  const select = el("select", { "aria-label": "run", onchange: () => set({ area: select.value }) },
    runs.map((run, i) => el("option", { value: i }, run.name)));
  select.value = state.area;
  areaChoice.append(el("span", { class: "choice" }, el("span", {}, "run"), select));
}

// Long names and values are broken into lines, so that the cells beside them stay in view.
const rowHead = (name, kind) => el("th", { scope: "row", class: kind }, el("span", { class: "label" }, name));
const columns = (names) => names.map((name) => el("th", { class: "n" }, name));
const cell = (value, text, kind = "") => el("td", { class: "n" + kind }, value === null ? "\u2013" : text(value));
const table = (heads, rows) => el("table", {}, el("thead", {}, el("tr", {}, ...heads)), el("tbody", {}, ...rows));
const scrolled = (child) => el("div", { class: "wide tall", tabindex: 0 }, child);
const prefixOf = (run) => runs.length > 1 ? run.name + ": " : "";
function head(run, i) {
  return el("th", { class: "n", title: run.folder }, el("span", { class: "head" }, runSwatch(i), el("span", { class: "name" }, run.name)));
}
// Returns the facts of a run as [name, text, addition, class].
function facts(run) {
  const f = run.facts, at = (point) => point ? "at step " + grouped(point.step) : "";
  const state = f.ended ? f.ending : f.last_time ? "goes on, or was killed" : "no step yet";
  const rows = [
    ["loss", number(f.mean_loss), `running mean, about ${f.mean_steps} steps`, "big"],
    ...f.validation.map((v) => [`validation loss${v.set ? " " + v.set : ""}`, number(v.last.value), `best ${number(v.best.value)} ${at(v.best)}`, "big"]),
    ["tokens/s, median", f.median_tokens_per_second === null ? "?" : grouped(f.median_tokens_per_second), "", "big"],
    ["MFU causal, median", percent(f.median_mfu_causal), "", "big"],
    ["tokens", si(f.tokens), "", "big"], ["steps", grouped(f.steps), f.phase ? "in phase " + f.phase : "", "big"],
    ["training time", seconds(f.seconds), "steps, validations, saves", "big"],
    ["step, median", seconds(f.median_step_seconds), "", ""],
    ["last loss", f.last_loss ? number(f.last_loss.value) : "?", at(f.last_loss), ""],
    ["lowest loss of a step", f.lowest_loss ? number(f.lowest_loss.value) : "?", at(f.lowest_loss), ""],
    ["state", state, f.last_time ? "last step " + localTime(f.last_time) : "", f.ended && !f.ending.startsWith("exit code 0") ? "warn" : ""],
    ["starts", String(f.starts), "", ""], ["warnings", String(f.warnings), "", f.warnings ? "warn" : ""],
  ];
  if (f.non_finite) rows.push(["steps without a finite loss", grouped(f.non_finite), "", "warn"]);
  if (f.skipped) rows.push(["steps without an update", grouped(f.skipped), "", "warn"]);
  if (f.damaged) rows.push(["lines left out", grouped(f.damaged), "damaged or half written", "warn"]);
  if (f.identity_fault) rows.push(["run.json", "not read", f.identity_fault, "warn"]);
  rows.push(["plan", f.plan_hash ? f.plan_hash.slice(0, 12) : "?", "SHA-256", ""], ["target", f.target || "?", f.host, ""],
    ["lmc", f.version || "?", "", ""], ["folder", run.folder, "", ""]);
  return rows;
}
function drawFacts() {
  const shown = shownRuns();
  factsPanel.replaceChildren(el("h2", {}, runs.length > 1 ? "Runs" : "Run"));
  if (runs.length === 1)
    return factsPanel.append(el("dl", { class: "facts" }, facts(runs[0]).map(([name, text, more, kind]) =>
      el("div", {}, el("dt", {}, name), el("dd", { class: kind }, text, more ? el("small", {}, more) : null)))));
  const lists = shown.map(({ run }) => facts(run)), names = [];
  // A fact that only some runs have comes after the fact before it in its run.
  for (const list of lists)
    list.forEach(([name], k) => { if (!names.includes(name)) names.splice(k ? names.indexOf(list[k - 1][0]) + 1 : 0, 0, name); });
  factsPanel.append(el("div", { class: "wide", tabindex: 0 }, table([el("th", {}), shown.map(({ run, i }) => head(run, i))],
    names.map((name) => el("tr", {}, rowHead(name), lists.map((list) => {
      const fact = list.find(([other]) => other === name);
      return fact ? el("td", { class: "n" + (fact[3] === "warn" ? " warn" : ""), title: fact[2] }, el("span", { class: "value" }, fact[1]),
        /^best|^at step/.test(fact[2]) ? el("small", { class: "value" }, fact[2]) : null) : cell(null);
    }))))));
}

function drawTime() {
  timePanel.replaceChildren(el("h2", {}, "Time and stalls"), el("p", { class: "note" },
    "Of all steps. A stall is a step in which one part took more than half a usual step in addition; the longest of each part are listed."));
  const bars = el("div", { class: "bars" });
  for (const { run, i } of shownRuns()) {
    const total = data.step_parts.reduce((sum, part) => sum + run.part_seconds[part], 0) || 1;
    bars.append(el("span", { class: "name" }, run.name),
      el("div", { class: "stack" }, data.step_parts.map((part) => el("div", { style: `background:var(--${part});width:${100 * run.part_seconds[part] / total}%` }))),
      el("span", { class: "shares" }, data.step_parts.map((part) => `${PARTS[part]} ${percent(run.part_seconds[part] / total)} (${seconds(run.part_seconds[part])})`).join(", ")));
  }
  const why = { compute: "computing", data: "waited for data", validation: "validation after the step", save: "saved before the step" };
  const rows = shownRuns().flatMap(({ run, i }) => run.slow.map((slow) => ({ run, i, ...slow }))).sort((a, b) => b.seconds - a.seconds);
  timePanel.append(bars, rows.length ? scrolled(table([columns(["step", "time"]), el("th", {}, "why"), runs.length > 1 ? el("th", {}, "run") : null],
    rows.map((row) => el("tr", {}, cell(row.step, grouped), cell(row.seconds, seconds),
      el("td", {}, why[row.part] + (row.first && row.part === "compute" ? ", first step of a start" : "")),
      runs.length > 1 ? el("td", {}, el("span", { class: "value" }, row.run.name)) : null)))) : el("p", {}, "No stalls."));
}

// ---- Settings that differ, with what came of them ------------------------------------------------------------------

const MOST_COLUMNS = 12; // of settings beside the results; with more, each setting has a row
// The best losses are of the first set of validation data that most runs have.
const setCount = (set) => runs.filter((run) => run.facts.validation.some((v) => v.set === set)).length;
const rankedSet = [...sets].sort((a, b) => setCount(b) - setCount(a))[0];
const bestValidation = (run) => run.facts.validation.find((v) => v.set === rankedSet)?.best.value ?? null;
const RANKS = {
  given: { text: "as given", value: () => 0 },
  loss: { text: "loss", value: (run) => run.facts.mean_loss ?? Infinity },
  validation: { text: "validation loss", value: (run) => bestValidation(run) ?? Infinity },
  speed: { text: "tokens/s", value: (run) => -(run.facts.median_tokens_per_second ?? 0) },
};
const differencePanel = el("section", { class: "panel" }), differenceTable = el("div", { class: "wide tall", tabindex: 0 });
if (data.differences.length) {
  differencePanel.append(el("h2", {}, "Settings that differ"));
  if (data.differences.length <= MOST_COLUMNS)
    differencePanel.append(choice("best first", "rank", Object.entries(RANKS).map(([key, { text }]) => [key, text])));
  differencePanel.append(differenceTable);
  main.append(differencePanel);
}
function drawDifferences() {
  const value = (text) => el("td", { class: "n" }, el("span", { class: "value" }, text === "" ? "\u2013" : text));
  if (data.differences.length > MOST_COLUMNS)
    return differenceTable.replaceChildren(table([el("th", {}), shownRuns().map(({ run, i }) => head(run, i))],
      data.differences.map(({ key, values }) => el("tr", {}, rowHead(el("code", {}, key)), shownRuns().map(({ i }) => value(values[i]))))));
  const { value: rank } = RANKS[state.rank] || RANKS.given;
  const best = shownRuns().sort((a, b) => rank(a.run) - rank(b.run) || a.i - b.i);
  const validation = (run) => bestValidation(run) === null ? "" : number(bestValidation(run));
  differenceTable.replaceChildren(table([el("th", {}, "run"), columns(data.differences.map(({ key }) => el("code", {}, key))),
    columns(["loss", "best validation loss" + (rankedSet ? " " + rankedSet : ""), "tokens/s", "steps"])],
    best.map(({ run, i }) => el("tr", {}, rowHead(el("span", {}, runSwatch(i), " ", run.name)), data.differences.map(({ values }) => value(values[i])),
      [number(run.facts.mean_loss), validation(run), run.facts.median_tokens_per_second === null ? "" : grouped(run.facts.median_tokens_per_second),
        grouped(run.facts.steps)].map(value)))));
}

// ---- Evaluations of exports, and generated texts -------------------------------------------------------------------

const evaluationPanel = el("section", { class: "panel" }), textPanel = el("section", { class: "panel" });
if (runs.some((run) => run.evaluations.length)) main.append(evaluationPanel);
if (runs.some((run) => run.generated.length)) main.append(textPanel);
function drawEvaluations() {
  evaluationPanel.replaceChildren(el("h2", {}, "Evaluations of exports"),
    el("p", { class: "note" }, "What checkpoint.export_command has found, by the step of the export."));
  for (const { run: { name, evaluations } } of shownRuns()) {
    const names = [...new Set(evaluations.flatMap(({ values }) => Object.keys(values)))].sort();
    if (!evaluations.length) continue;
    evaluationPanel.append(scrolled(table(
      [el("th", {}, el("span", { class: "label" }, runs.length > 1 ? name : "")), columns(evaluations.map(({ step }) => grouped(step)))],
      names.map((key) => el("tr", {}, rowHead(el("code", {}, key)),
        evaluations.map(({ values }) => cell(values[key] ?? null, String)))))));
  }
}
function drawTexts() {
  textPanel.replaceChildren(el("h2", {}, "Generated text"),
    el("p", { class: "note" }, "Prompts, and how the model continues them: the latest step first."));
  const ends = { length: "", end_of_document: " \u25a0", not_finite: " (the logits are not finite)" };
  for (const { run } of shownRuns())
    for (const { prompt, texts } of run.generated)
      textPanel.append(el("details", { open: run.generated.length < 4 },
        el("summary", { class: "prompt" }, prefixOf(run) + prompt),
        el("div", { class: "wide", tabindex: 0 }, el("table", {}, el("tbody", {}, [...texts].reverse().map(({ step, text, end }) =>
          el("tr", {}, el("td", { class: "n" }, grouped(step)), el("td", { class: "text generated" }, text + (ends[end] || "")))))))));
}

// Returns a panel that is drawn when it is open. The address keeps whether the reader has changed it from `open`.
function foldable(name, title, open, draw, ...children) {
  const panel = el("details", { class: "panel " + name, open: open !== opened.has(name), ontoggle: () => {
    if (panel.open !== open) opened.add(name); else opened.delete(name);
    if (panel.open) draw();
    remember();
  } }, el("summary", {}, title), children);
  return panel;
}

// ---- Updates of tensors, and routers of experts --------------------------------------------------------------------

const FEW_ITEMS = 24; // so many tensors or layers are shown at once
// Returns a drawing of values on a logarithmic scale from `low` to `high`. Values that are zero or absent are gaps.
function sparkline(label, ratios, steps, low, high, colour) {
  const width = 120, height = 24, pad = 2, span = steps[steps.length - 1] - steps[0] || 1, scale = Math.log(high / low) || 1;
  let path = "", pen = "M";
  ratios.forEach((ratio, k) => {
    if (!(ratio > 0)) { pen = "M"; return; }
    const x = pad + (steps[k] - steps[0]) / span * (width - 2 * pad), y = height - pad - Math.log(ratio / low) / scale * (height - 2 * pad);
    path += `${pen}${x.toFixed(1)} ${y.toFixed(1)}${pen === "M" ? "h0" : ""}`; // a lone point is a dot
    pen = "L";
  });
  return svg("svg", { class: "spark", viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": label },
    svg("path", { class: "line", d: path, stroke: colour, "stroke-width": 1.4 }));
}
// Makes a panel with a table per run, in which each of the run's `items` has a row with a line of its `series`. Returns the
// function that draws the panel. spec: name, title, note, items, series, text(value) of the ends of lines,
// sorted(all items), heads(all items), cells(item, line(label), all items).
function itemPanel(spec, ...choices) {
  const list = el("div", {}), count = runs.reduce((sum, run) => sum + run[spec.name][spec.items].length, 0);
  const panel = foldable(spec.name, `${spec.title} (${grouped(count)})`, count <= FEW_ITEMS, draw, ...choices, list);
  if (count) main.append(panel);
  function draw() {
    if (!panel.open) return;
    list.replaceChildren(el("p", { class: "note" }, spec.note));
    for (const { run, i } of shownRuns()) {
      const { step, steps, left_out: leftOut, [spec.items]: all } = run[spec.name];
      if (!all.length) continue;
      const drawn = all.flatMap((item) => item[spec.series].filter((value) => value > 0));
      const low = drawn.reduce((a, b) => Math.min(a, b), Infinity), high = drawn.reduce((a, b) => Math.max(a, b), 0);
      list.append(
        el("p", { class: "note" }, `${prefixOf(run)}the latest are of step ${grouped(step)}`
          + (drawn.length ? `; lines from ${spec.text(low)} to ${spec.text(high)}` : "")
          + (leftOut ? `; ${grouped(leftOut)} more ${spec.items} are left out` : "") + "."),
        scrolled(table(spec.heads(all), spec.sorted(all).map((item) => {
          const line = (label) => el("td", {}, sparkline(`${label} over the run`, item[spec.series], steps, low, high, colourOf(i)));
          return el("tr", {}, ...spec.cells(item, line, all));
        }))));
    }
  }
  return draw;
}

const SORTS = { model: () => 0, ratio: (tensor) => tensor.ratio ?? -1, highest: (tensor) => tensor.highest?.value ?? -1 };
const drawUpdates = itemPanel({
  name: "updates", title: "Updates of tensors", items: "tensors", series: "ratios", text: (ratio) => number(ratio, 2),
  note: "Norm of the update of a tensor / norm of its weights, in the steps whose checkpoint or export was written " +
    "while the run went on. A point of a line is the highest ratio of neighbouring ones; all lines of a run have one logarithmic scale.",
  sorted: (tensors) => {
    const key = SORTS[state.sort] || SORTS.model;
    return [...tensors].sort((a, b) => key(b) - key(a));
  },
  heads: () => [el("th", {}, "tensor"), columns(["latest ratio", "highest", "at step"]), el("th", {}, "over the run"),
    columns(["RMS of weights", "at first"])],
  cells: (tensor, line) => [rowHead(el("code", {}, tensor.name)), cell(tensor.ratio, exponent),
    cell(tensor.highest && tensor.highest.value, exponent), cell(tensor.highest && tensor.highest.step, grouped),
    line("update ratio of " + tensor.name), cell(tensor.last_rms, exponent), cell(tensor.first_rms, exponent)],
}, choice("order", "sort", [["model", "of the model"], ["ratio", "by latest ratio"], ["highest", "by highest ratio"]]));

const hasLate = (layers) => layers.some(({ late }) => late !== null);
const figure = (value, text) => cell(value, text, value === 0 ? " warn" : "");
const drawRouters = itemPanel({
  name: "routers", title: "Routers of experts", items: "layers", series: "loads", text: percent,
  note: "Shares of a layer's choices that its busiest and its idlest expert got, the entropy of the router in nats, and the " +
    "balancing loss of the layer, of the latest step. A point of a line is the highest share of a busiest expert of neighbouring " +
    "steps; all lines of a run have one logarithmic scale.",
  sorted: (layers) => layers,
  heads: (layers) => [columns(["layer", "busiest", "idlest", "entropy", "balancing loss", ...(hasLate(layers) ? ["late"] : []),
    "highest busiest", "at step"]), el("th", {}, "busiest over the run")],
  cells: (layer, line, layers) => [rowHead(grouped(layer.layer), "n"), figure(layer.max_load, percent), figure(layer.min_load, percent),
    figure(layer.entropy, exponent), figure(layer.balance_loss, exponent), hasLate(layers) ? cell(layer.late, percent) : null,
    figure(layer.highest && layer.highest.value, percent), cell(layer.highest && layer.highest.step, grouped),
    line("share of the busiest expert of layer " + layer.layer)],
});

// ---- Events --------------------------------------------------------------------------------------------------------

const eventList = el("div", { class: "wide", tabindex: 0 });
const eventCount = runs.reduce((sum, run) => sum + run.events.length, 0);
const eventPanel = foldable("events", `Events (${grouped(eventCount)})`, false, drawEvents, eventList);
main.append(eventPanel);
function drawEvents() {
  if (!eventPanel.open) return;
  const rows = shownRuns().flatMap(({ run }) => run.events.map((event) => ({ run, event }))).sort((a, b) => a.event.time < b.event.time ? 1 : a.event.time > b.event.time ? -1 : 0);
  eventList.replaceChildren(el("p", { class: "note" }, `The newest first; at most the latest ${data.most_events} of each kind and run. Events of steps that were taken back are marked.`),
    table(["time", "step", "event", ...(runs.length > 1 ? ["run"] : []), "what"].map((text) => el("th", {}, text)),
      rows.map(({ run, event }) => el("tr", {}, el("td", {}, localTime(event.time)), el("td", { class: "n" }, event.step === null ? "" : grouped(event.step)),
        el("td", {}, event.kind.replace("_", " ") + (event.taken_back ? " (taken back)" : "")), runs.length > 1 ? el("td", {}, el("span", { class: "value" }, run.name)) : null, el("td", { class: "text" }, event.text)))));
}

// ---- Drawing, and loading anew -------------------------------------------------------------------------------------

function drawAll() {
  for (const box of choices) box.update();
  [...chips.children].forEach((chip, i) => chip.setAttribute("aria-pressed", !hidden.has(i)));
  unzoom.parentNode.parentNode.style.display = zoom() ? "" : "none";
  for (const chart of charts) chart.draw();
  drawFacts();
  drawTime();
  drawDifferences();
  drawEvaluations();
  drawTexts();
  drawUpdates();
  drawRouters();
  drawEvents();
}
const title = runs.length === 1 ? runs[0].name : `${runs.length} runs`;
document.title = `${title} \u2013 training report`;
document.getElementById("title").textContent = runs.length === 1 ? title : runs.map((run) => run.name).join(", ");
const subtitle = document.getElementById("subtitle");
subtitle.textContent = `Training report by lmc, written ${new Date(data.written_at * 1000).toLocaleString()}.`;
if (data.reload_seconds > 0) {
  const badge = el("span", { class: "badge" }, `live, anew every ${data.reload_seconds} s`);
  subtitle.append(badge);
  if (Date.now() / 1000 - data.written_at > 3 * data.reload_seconds + 60)
    badge.textContent = "no news: lmc report --watch has ended";
  const reload = () => {
    // The page does not change under the pointer of a reader.
    if (Date.now() - lastTouched < 3000) setTimeout(reload, 1000);
    else location.reload();
  };
  setTimeout(reload, data.reload_seconds * 1000);
}
drawAll();
let drawnWidth = innerWidth;
addEventListener("resize", () => { if (innerWidth !== drawnWidth) { drawnWidth = innerWidth; drawAll(); } });
document.documentElement.dataset.drawn = String(charts.length);
})();
