"use strict";
// Draws the figures from the JSON beside them: clouds on canvases of our own, which need no WebGL and print; the
// rest with plotly. Colours come from the style sheet, so that light, dark and print have one source.

const root = document.documentElement;
const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
const dataOf = (figure) => JSON.parse(figure.querySelector("script").textContent);
const still = matchMedia("(prefers-reduced-motion: reduce)").matches;

// ---- clouds: orthographic, those of a figure seen from one direction, so that turning one turns all -------------
const groups = [];

for (const figure of document.querySelectorAll("figure.clouds, figure.latents")) {
  const data = dataOf(figure), group = { view: { yaw: -0.6, pitch: 0.35 }, clouds: [] };
  groups.push(group);
  figure.querySelectorAll("canvas").forEach((canvas, k) => {
    group.clouds.push(data.clouds ? { canvas, ...data, ...data.clouds[k] } : chosen(figure, group, canvas, data));
    let last = null;
    canvas.addEventListener("pointerdown", (event) => { last = event; canvas.setPointerCapture(event.pointerId); });
    canvas.addEventListener("pointerup", () => { last = null; });
    canvas.addEventListener("pointercancel", () => { last = null; });
    canvas.addEventListener("pointermove", (event) => {
      if (last) turn(group, (event.clientX - last.clientX) / 150, (event.clientY - last.clientY) / 150);
      if (last) last = event;
    });
    canvas.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (step) { event.preventDefault(); turn(group, ...step); }
    });
  });
}

// Of latents the reader chooses the columns to see. Two lie flat before the eye, three are turned.
function chosen(figure, group, canvas, { points, colourings }) {
  const cloud = { canvas, points: [], surface: [], arrows: [], colours: [], surfaceColours: [], arrowColours: [] };
  const axes = [...figure.querySelectorAll("select.axis")], colouring = figure.querySelector("select.colouring");
  const choose = () => {
    const columns = axes.map((select) => Number(select.value));
    const flat = columns.length < 3 || columns[2] < 0;
    if (flat) Object.assign(group.view, { yaw: 0, pitch: 0 });
    group.flat = flat;
    cloud.points = points.map((row) => (flat ? [row[columns[0]], 0, row[columns[1] ?? columns[0]]] : columns.map((k) => row[k])).map((v) => 0.85 * v));
    const by = colourings[Number(colouring.value)];
    cloud.colours = by ? by.which.map((k) => by.shades[k]) : points.map(() => colour("accent"));
    if (by) showKey(figure.querySelector(".key"), by);
  };
  for (const select of [...axes, colouring]) select.addEventListener("change", () => { choose(); drawGroup(group); });
  choose();
  return cloud;
}

// A slider moves the image behind its tile.
for (const input of document.querySelectorAll(".slider input")) {
  const show = () => input.parentElement.querySelector(".tile").style.setProperty("--column", input.value);
  input.addEventListener("input", show);
  show(); // a browser may remember where it stood
}

function showKey(box, { name, shades, key, amounts, others }) {
  const part = (tag, text, background) => {
    const made = document.createElement(tag);
    made.textContent = text;
    if (background) made.style.background = background;
    return made;
  };
  const kinds = () => key.map((kind, k) => { const line = part("span", kind); line.prepend(part("i", "", shades[k])); return line; });
  const scale = () => [part("i", "", `linear-gradient(to right, ${shades})`), ...key.map((amount) => part("span", amount))];
  box.replaceChildren(part("b", name), ...(amounts ? scale() : kinds()), ...(others ? [part("span", `and ${others} more`)] : []));
  box.classList.toggle("scale", amounts);
}

function turn(group, yaw, pitch) {
  entrance = 0;
  if (group.flat) return;
  group.view.yaw += yaw;
  group.view.pitch = Math.max(-1.5, Math.min(1.5, group.view.pitch + pitch));
  requestAnimationFrame(() => drawGroup(group));
}

function drawGroup({ view, clouds }) {
  for (const cloud of clouds) drawCloud(view, cloud);
}

function drawCloud(view, { canvas, points, surface, arrows, colours, surfaceColours, arrowColours }) {
  const side = canvas.clientWidth, dense = Math.max(window.devicePixelRatio || 1, 1.5);
  if (!side) return;
  canvas.width = canvas.height = Math.round(side * dense);
  const pen = canvas.getContext("2d");
  pen.scale(dense, dense);
  const [cy, sy, cp, sp] = [Math.cos(view.yaw), Math.sin(view.yaw), Math.cos(view.pitch), Math.sin(view.pitch)];
  const unit = side / 340, radius = side * 0.47;
  const seen = ([x, y, z]) => { // [right, down, near]
    const across = cy * x - sy * y, away = sy * x + cy * y;
    return [side / 2 + radius * across, side / 2 - radius * (cp * z + sp * away), sp * z - cp * away];
  };
  const marks = []; // [near, draw(t), with t from 0 (far) to 1 (near)]
  const net = surface.map((row) => row.map(seen));
  for (let i = 1; i < net.length; i++) {
    for (let j = 1; j < net[i].length; j++) {
      const patch = [net[i - 1][j - 1], net[i - 1][j], net[i][j], net[i][j - 1]];
      const near = (patch[0][2] + patch[1][2] + patch[2][2] + patch[3][2]) / 4;
      const edges = [i % 4 === 0 && i < net.length - 1 && [patch[2], patch[3]], j % 4 === 0 && [patch[1], patch[2]]];
      marks.push([near, (t) => drawPatch(pen, patch, edges.filter(Boolean), surfaceColours[i][j], t, unit)]);
    }
  }
  points.forEach((point, i) => {
    const at = seen(point);
    marks.push([at[2] + 0.02, (t) => drawDisc(pen, at, (0.8 + 1.3 * t) * unit, colours[i], 0.1 + 0.9 * t)]);
  });
  const rim = colour("paper"), ink = colour("ink");
  arrows.forEach(([tail, tip], i) => {
    const [from, to] = [seen(tail), seen(tip)];
    marks.push([(from[2] + to[2]) / 2, (t) => drawStem(pen, from, to, arrowColours[i], 0.35 + 0.65 * t, unit)]);
    marks.push([to[2] + 0.06, (t) => { // above the points around it
      const alpha = 0.3 + 0.7 * t, radius = (3.4 + 2 * t) * unit;
      drawDisc(pen, to, radius + 2.2 * unit, rim, alpha);
      drawDisc(pen, to, radius + 1.1 * unit, ink, alpha);
      drawDisc(pen, to, radius, arrowColours[i], 1);
    }]);
  });
  marks.sort((a, b) => a[0] - b[0]); // far ones first
  for (const [near, draw] of marks) draw(Math.max(0, Math.min(1, (near + 1) / 2)));
}

function drawPatch(pen, patch, edges, ink, t, unit) {
  pen.fillStyle = pen.strokeStyle = ink;
  pen.globalAlpha = 0.12 + 0.33 * t;
  pen.beginPath();
  patch.forEach(([x, y], k) => (k ? pen.lineTo(x, y) : pen.moveTo(x, y)));
  pen.fill();
  pen.globalAlpha = 0.1 + 0.8 * t;
  pen.lineWidth = (0.5 + 0.9 * t) * unit;
  pen.beginPath();
  for (const [from, to] of edges) { pen.moveTo(from[0], from[1]); pen.lineTo(to[0], to[1]); }
  pen.stroke();
}

function drawDisc(pen, at, radius, ink, alpha) {
  pen.globalAlpha = alpha;
  pen.fillStyle = ink;
  pen.beginPath();
  pen.arc(at[0], at[1], radius, 0, 7);
  pen.fill();
}

function drawStem(pen, from, to, ink, alpha, unit) {
  pen.globalAlpha = alpha;
  pen.strokeStyle = ink;
  pen.lineWidth = 1.6 * unit;
  pen.beginPath();
  pen.moveTo(from[0], from[1]);
  pen.lineTo(to[0], to[1]);
  pen.stroke();
}

// A short turn on arrival shows that these are bodies, not discs; nothing moves for those who asked for that.
let entrance = still ? 0 : 1;
const began = performance.now();
(function arrive(now) {
  if (!entrance) return;
  const t = Math.min(1, Math.max(0, now - began) / 2600);
  for (const { view, flat } of groups) if (!flat) view.yaw = -0.6 - 1.6 * (1 - t) ** 3;
  groups.forEach(drawGroup);
  if (t < 1) requestAnimationFrame(arrive);
})(began);

// ---- plots ---------------------------------------------------------------------------------------------------------
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads some tags

function axis(title, more) {
  return {
    title: { text: title, standoff: 8, font: { size: 13 } }, color: colour("soft"), gridcolor: colour("line"), zeroline: false,
    showline: false, ticks: "", fixedrange: true, ...more,
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false,
    font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("soft") },
    hoverlabel: { bgcolor: colour("wash"), bordercolor: colour("line"), font: { color: colour("ink") } }, ...more,
  };
}

function rangeOf(...values) {
  const all = values.flat(2), low = Math.min(...all), high = Math.max(...all);
  return [low - 0.04 * (high - low), high + 0.04 * (high - low)];
}

function scatters({ panels }) {
  const truth = rangeOf(panels.map((panel) => panel.true)); // one range for all panels, so that they compare
  const values = rangeOf(panels.map((panel) => [...panel.true, ...panel.recovered, ...panel.linear]));
  const dots = (x, y, name, ink, opacity) => ({
    x, y, name, mode: "markers", type: "scatter", marker: { color: ink, size: 3.8, opacity, line: { width: 0 } },
    hovertemplate: `true %{x:.2f}<br>${name} %{y:.2f}<extra></extra>`,
  });
  return panels.map((panel) => [
    [dots(panel.true, panel.linear, "linear fit", colour("faint"), 0.45), dots(panel.true, panel.recovered, "recovered", colour("accent"), 0.85)],
    layout({
      margin: { l: 42, r: 6, t: 6, b: 38 }, xaxis: axis("true", { range: truth, nticks: 4 }),
      yaxis: axis("recovered", { range: values, nticks: 6 }),
    }),
  ]);
}

function curves({ curves, guessing }) {
  const inks = curves.length > 1 ? [colour("accent"), colour("warn")] : [colour("accent")];
  const last = Math.max(...curves.map((curve) => curve.step.at(-1)));
  const label = (y, text, ink, yanchor) => ({
    x: 1, xref: "paper", xanchor: "right", y, yanchor, text: plain(text), showarrow: false, font: { color: ink, size: 13 },
  });
  return [[
    curves.map((curve, k) => ({
      x: curve.step, y: curve.loss, name: plain(curve.name), mode: "lines", type: "scatter", line: { color: inks[k], width: 2 },
      hovertemplate: "step %{x:.0f}<br>loss %{y:.3f}<extra></extra>",
    })),
    layout({
      margin: { l: 42, r: 6, t: 12, b: 40 }, xaxis: axis("step", { range: [0, last * 1.01], nticks: 6, showgrid: false }),
      yaxis: axis("loss", { nticks: 5 }),
      shapes: guessing === null ? [] : [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: guessing, y1: guessing, line: { color: colour("faint"), width: 1, dash: "dot" } }],
      annotations: [
        ...(guessing === null ? [] : [label(guessing, "guessing", colour("soft"), "bottom")]),
        ...curves.slice(curves.length > 1 ? 0 : 1).map((curve, k) => label(curve.loss.at(-1), curve.name, inks[k], guessing !== null && curve.loss.at(-1) > guessing - 0.2 ? "top" : "bottom")),
      ],
    }),
  ]];
}

const kinds = { scatters, curves };

function drawPlots() {
  for (const [kind, arrange] of Object.entries(kinds)) {
    for (const figure of document.querySelectorAll("figure." + kind)) {
      const arranged = arrange(dataOf(figure));
      figure.querySelectorAll(".plot").forEach((box, k) => {
        const size = { width: box.clientWidth, height: box.clientHeight };
        Plotly.react(box, arranged[k][0], { ...arranged[k][1], ...size }, { displayModeBar: false });
      });
    }
  }
}

async function loadPlotly() {
  const source = document.getElementById("plotly-js");
  if (!source) return; // a page without plots
  const packed = Uint8Array.from(atob(source.textContent), (c) => c.charCodeAt(0));
  const unpacked = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const script = document.createElement("script");
  script.textContent = await new Response(unpacked).text();
  document.head.append(script);
}

function drawAll() {
  groups.forEach(drawGroup);
  if (window.Plotly) drawPlots();
}

loadPlotly().then(drawPlots).catch((error) => {
  console.error(error);
  for (const box of document.querySelectorAll(".plot")) {
    box.classList.add("failed");
    box.textContent = "This picture needs a browser of 2023 or later.";
  }
}).finally(() => root.classList.add("drawn"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
new ResizeObserver(() => requestAnimationFrame(drawAll)).observe(document.querySelector("main"));
addEventListener("beforeprint", () => { entrance = 0; root.classList.add("printing"); drawAll(); });
addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });
