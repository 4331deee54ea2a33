"use strict";
// Appearance and behavior of charts: theme colors, axes, hover, zoom. charts.js defines the charts.
const liveCharts = new Set();
const watch = new ResizeObserver((entries) => { for (const one of liveCharts) if (entries.some((entry) => entry.target === one.box)) one.resize(); });
const shownQuantiles = { p50: true, p90: false, p95: true, p99: true };
const quantileColors = { p50: "--c0", p90: "--c2", p95: "--c1", p99: "--c3" };
let printing = false;

function element(name, parent, text, className) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  if (className) made.className = className;
  if (parent) parent.append(made);
  return made;
}

// The value of a CSS color variable in the current theme, read from a hidden element and cached.
const colorElement = element("span");
colorElement.hidden = true;
document.body.append(colorElement);
const colorCache = new Map();
function color(name) {
  if (!colorCache.has(name)) {
    colorElement.style.color = `var(${name})`;
    colorCache.set(name, getComputedStyle(colorElement).color);
  }
  return colorCache.get(name);
}

function figure(value) {
  if (value == null || !isFinite(value)) return "–";
  const size = Math.abs(value);
  return size >= 1000 ? Math.round(value).toString() : Number(value.toPrecision(3)).toString();
}
function inUnit(value, unit) {
  if (value == null || !isFinite(value)) return "–";
  if (unit === "ms" && Math.abs(value) >= 1000) return figure(value / 1000) + " s";
  if (unit === "%") return figure(value * 100) + "%";
  return figure(value) + (unit ? " " + unit : "");
}
const seconds = (value) => (value == null ? "–" : (value < 1 ? figure(value * 1000) + " ms" : Number(value.toPrecision(5)) + " s"));

function axis(label, side, values, log, fixed) {
  const own = { label, labelSize: 20, labelFont: "12px system-ui, sans-serif", font: "11px system-ui, sans-serif", stroke: () => color("--muted"), grid: { stroke: () => color("--grid"), width: 1 }, ticks: { stroke: () => color("--line"), width: 1, size: 4 } };
  if (values) own.values = (u, ticks) => ticks.map((tick) => (tick == null ? "" : values(tick)));
  if (!side) { own.size = fixed ? 6 : 28; own.labelSize = 16; own.labelGap = 0; }
  if (side) own.size = fixed ? () => 48 : (u, texts) => 18 + Math.max(20, ...(texts || []).map((text) => String(text).length * 6.6));
  if (log) own.filter = own.grid.filter = own.ticks.filter = (u, ticks) => { const few = Math.log10(u.scales[log].max / u.scales[log].min) < 2.3; return ticks.map((tick) => { const lead = +(tick / 10 ** Math.floor(Math.log10(tick) + 1e-9)).toFixed(6); return lead === 1 || (few && (lead === 2 || lead === 5)) ? tick : null; }); };
  return own;
}

// The range of a linear axis from zero, with some headroom.
const fromZero = (u, low, high) => [0, high > 0 ? high * 1.06 : 1];
const around = (u, low, high) => (low === high ? [low - Math.max(1, Math.abs(low)) * 0.5, high + Math.max(1, Math.abs(high)) * 0.5] : [low, high]);
const decades = (u, low, high) => { const least = low > 0 ? low : 0.001; return [10 ** Math.floor(Math.log10(least)), 10 ** Math.ceil(Math.log10(Math.max(high, least * 1.0001)))]; };

// Shaded bands of the horizontal axis, drawn behind the data.
function drawBackground(u, chart) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
  for (const band of chart.bands || []) {
    // Canvas coordinates far outside the visible area are drawn wrongly, so the band is clipped first.
    const { min, max } = u.scales.x, [from, to] = [Math.max(band.from, min), Math.min(band.to, max)];
    if (from >= to) continue;
    const [a, b] = [from, to].map((x) => u.valToPos(x, "x", true));
    ctx.fillStyle = color(band.color); ctx.globalAlpha = band.alpha || 1;
    if (band.strip) ctx.fillRect(a, bbox.top, b - a, 4 * devicePixelRatio); else ctx.fillRect(a, bbox.top, b - a, bbox.height);
    ctx.globalAlpha = 1;
  }
  ctx.restore();
}
// Custom painting and dashed marks, drawn over the data.
function drawForeground(u, chart) {
  const { ctx, bbox } = u;
  ctx.save();
  ctx.beginPath(); ctx.rect(bbox.left, bbox.top, bbox.width, bbox.height); ctx.clip();
  if (chart.draw) chart.draw(u, ctx);
  ctx.setLineDash([7, 3, 2, 3].map((part) => part * devicePixelRatio)); ctx.lineWidth = 1.5 * devicePixelRatio;
  for (const mark of chart.marks || []) {
    ctx.strokeStyle = color(mark.color || "--limit");
    ctx.beginPath();
    if (mark.x != null) { const x = u.valToPos(mark.x, "x", true); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); }
    if (mark.y != null) { const y = u.valToPos(mark.y, "y", true); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); }
    ctx.stroke();
  }
  ctx.restore();
}

function scales(chart) {
  const { x: data } = chart, ofLog = (u, low, high) => (low === high ? [low / 2, high * 2] : [low, high]);
  const first = chart.xRange || (chart.xLog ? ofLog : around);
  // A range that covers all data means no zoom, so it is replaced by the initial range.
  const range = (u, low, high) => (low <= data[0] && high >= data[data.length - 1] ? u.fullRange || first(u, low, high) : [low, high]);
  return {
    x: { time: false, range, distr: chart.xLog ? 3 : 1 },
    y: { dir: chart.yDown ? -1 : 1, range: chart.yRange || (chart.yLog ? decades : fromZero), distr: chart.yLog ? 3 : 1 },
  };
}

function line(own) {
  // A line through a single value is invisible, so its point is drawn.
  const stroke = () => color(own.color), lone = own.values.filter((value) => value != null).length === 1;
  const made = { label: own.label, stroke, width: own.width == null ? 2 : own.width, dash: own.dash, points: { show: own.points === true || lone, size: own.size || 6, fill: stroke, stroke }, value: (u, value) => (value == null ? "–" : (own.say || figure)(value)) };
  if (own.quantile) made.show = shownQuantiles[own.quantile];
  if (own.gapless) made.spanGaps = true;
  if (own.steps) made.paths = uPlot.paths.stepped({ align: 1 });
  if (own.bars) { made.paths = uPlot.paths.bars({ size: [0.9, 60] }); made.fill = stroke; made.width = 0; made.points.show = false; }
  if (own.scatter) { made.paths = () => null; made.points = { show: true, size: own.size || 4, fill: stroke, stroke, width: 0 }; }
  return made;
}

// Adds a chart as a figure with caption, canvas and legend. `chart.lines` are series over `chart.x`; `chart.draw` paints the rest.
function draw(parent, chart) {
  const named = chart.lines.filter((own) => own.label).length;
  const box = element("figure", parent, null, [chart.wide && "wide", named < 2 && "single"].filter(Boolean).join(" "));
  if (chart.id) box.id = chart.id;
  const caption = element("figcaption", box, chart.title);
  if (chart.remark) element("small", caption, chart.remark);
  const reset = element("button", caption, "Reset zoom", "reset");
  reset.type = "button"; reset.hidden = true;
  const hoverText = chart.hover ? element("p", null, "", "hover") : null;
  const height = chart.height || 250;
  const size = () => (printing ? { width: chart.wide ? 690 : 340, height: Math.min(height * 0.7, 300) } : { width: Math.max(240, box.clientWidth), height });
  const zoomed = (u) => { const full = u.fullRange; if (full) reset.hidden = Math.abs(u.scales.x.min - full[0]) + Math.abs(u.scales.x.max - full[1]) < 1e-9 * (full[1] - full[0] || 1); };
  const u = new uPlot({
    ...size(),
    scales: scales(chart),
    series: [{ label: chart.xName || "x", value: (u, value) => (value == null ? "–" : (chart.sayX || figure)(value)) }, ...chart.lines.map(line)],
    axes: [axis(chart.xLabel, false, chart.bare ? () => "" : chart.tickX || figure, chart.xLog && "x", chart.bare), axis(chart.yLabel, true, chart.tickY || figure, chart.yLog && "y", chart.sync)],
    cursor: { drag: { x: true, y: false, dist: 4 }, focus: { prox: 30 }, ...(chart.sync ? { sync: { key: chart.sync, scales: ["x", null] } } : {}) },
    focus: { alpha: 0.45 },
    legend: { show: !chart.hover, live: true },
    hooks: {
      drawClear: [(u) => drawBackground(u, chart)],
      draw: [(u) => drawForeground(u, chart)],
      ready: [(u) => { u.fullRange = [u.scales.x.min, u.scales.x.max]; }],
      setScale: [(u, key) => { if (key === "x") { zoomed(u); syncZoom(u, chart); } }],
      setCursor: [(u) => { box.classList.toggle("hovering", u.cursor.left >= 0); if (hoverText) hoverText.textContent = (u.cursor.left >= 0 && chart.hover(u)) || "\u00a0"; }],
    },
  }, [chart.x, ...chart.lines.map((own) => own.values)], box);
  if (hoverText) { box.append(hoverText); hoverText.textContent = "\u00a0"; }
  if (chart.keys) addKeys(box, chart.keys);
  reset.onclick = () => u.setScale("x", { min: u.fullRange[0], max: u.fullRange[1] });
  const one = { u, chart, box, resize: () => { const next = size(); if (next.width !== u.width || next.height !== u.height) u.setSize(next); } };
  liveCharts.add(one);
  watch.observe(box);
  return one;
}

// Zooms all charts over the same time together.
function syncZoom(from, chart) {
  if (!chart.sync || !from.fullRange) return;
  for (const other of liveCharts) {
    const { min, max } = from.scales.x;
    if (other.chart.sync === chart.sync && other.u !== from && other.u.fullRange && (other.u.scales.x.min !== min || other.u.scales.x.max !== max)) other.u.setScale("x", { min, max });
  }
}

// An extra legend for colors and symbols that the legend of the chart does not explain.
function addKeys(box, entries) {
  const row = element("div", box, null, "keys");
  for (const [name, label, stroke] of entries) {
    const entry = element("span", row);
    if (name.length < 3) { element("b", entry, name); entry.append(" " + label); continue; }
    const mark = element("i", entry, null, stroke ? "stroke" : "");
    mark.style[stroke ? "borderTopColor" : "background"] = name.startsWith("--") ? `var(${name})` : name;
    entry.append(label);
  }
}

function discard(container) {
  for (const one of [...liveCharts]) if (container.contains(one.box)) { liveCharts.delete(one); watch.unobserve(one.box); one.u.destroy(); }
  container.replaceChildren();
}
function refresh() {
  colorCache.clear();
  for (const { u, resize } of liveCharts) { resize(); u.redraw(false, true); }
}

// Buttons that show and hide percentiles in all charts.
function toggles(parent) {
  const row = element("div", parent, null, "tools");
  element("span", row, "Percentiles", "muted");
  for (const name of Object.keys(shownQuantiles)) {
    const button = element("button", row, name);
    button.type = "button"; button.dataset.quantile = name; button.setAttribute("aria-pressed", shownQuantiles[name]);
    button.onclick = () => choose(name, !shownQuantiles[name]);
  }
}
function choose(name, on) {
  shownQuantiles[name] = on;
  document.querySelectorAll(`button[data-quantile="${name}"]`).forEach((button) => button.setAttribute("aria-pressed", on));
  for (const { u, chart } of liveCharts) chart.lines.forEach((own, index) => { if (own.quantile === name) u.setSeries(index + 1, { show: on }); });
}

// The index of the point nearest to the cursor, or -1 if none is near it.
function nearest(u, xs, ys) {
  let best = -1, least = 24 ** 2;
  for (let index = 0; index < xs.length; index++) {
    if (xs[index] == null || ys[index] == null) continue;
    const far = (u.valToPos(xs[index], "x") - u.cursor.left) ** 2 + (u.valToPos(ys[index], "y") - u.cursor.top) ** 2;
    if (far < least) { least = far; best = index; }
  }
  return best;
}
