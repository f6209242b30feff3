"use strict";
// Draws figures by plotly from the JSON in them. Colours come from the style sheet: light, dark and print share a source.

const root = document.documentElement;
const colour = (name) => getComputedStyle(root).getPropertyValue("--" + name).trim();
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;"); // plotly reads some tags
const range = (n) => [...Array(n).keys()];

function axis(title, more) {
  return {
    title: { text: title, standoff: 8, font: { size: 13 } }, color: colour("soft"), gridcolor: colour("line"), zeroline: false,
    showline: false, ticks: "", fixedrange: true, ...more,
  };
}

function layout(more) {
  return {
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)", showlegend: false, dragmode: false, uirevision: "kept",
    margin: { l: 0, r: 0, t: 0, b: 0 }, font: { family: getComputedStyle(document.body).fontFamily, size: 13, color: colour("soft") },
    hoverlabel: { bgcolor: colour("wash"), bordercolor: colour("line"), font: { color: colour("ink") } }, ...more,
  };
}

function rangeOf(...values) {
  const all = values.flat(2), low = Math.min(...all), high = Math.max(...all);
  return [low - 0.04 * (high - low), high + 0.04 * (high - low)];
}

// ---- three dimensions ------------------------------------------------------------------------------------------------
const cameraAt = (yaw, pitch) => ({
  projection: { type: "orthographic" }, center: { x: 0, y: 0, z: 0 }, up: { x: 0, y: 0, z: 1 },
  eye: { x: 2 * Math.sin(yaw) * Math.cos(pitch), y: -2 * Math.cos(yaw) * Math.cos(pitch), z: 2 * Math.sin(pitch) },
});

function scene() {
  const hidden = { visible: false, range: [-1.05, 1.05], autorange: false };
  return { xaxis: hidden, yaxis: hidden, zaxis: hidden, aspectmode: "manual", aspectratio: { x: 1.9, y: 1.9, z: 1.9 }, dragmode: "orbit", camera: cameraAt(0.6, 0.35), uirevision: "kept" };
}

function spatial(type, points, more) {
  const [x, y, z] = [0, 1, 2].map((k) => points.map((point) => (point ? point[k] : null)));
  return { type, x, y, z, hoverinfo: "skip", ...more };
}

const dotsIn = (points, color, size, more) => spatial("scatter3d", points, { mode: "markers", marker: { color, size, line: { width: 0 } }, ...more });

function linesIn(lines, colours, width) { // lines of points, and the colours of their points, with gaps between lines
  const joined = (parts) => parts.flatMap((part) => [...part, null]);
  const color = joined(colours).map((each, k, all) => each ?? all[k - 1]);
  return spatial("scatter3d", joined(lines), { mode: "lines", line: { color, width }, connectgaps: false });
}

function surfaceIn(net, colours) {
  const n = net[0].length, [i, j, k] = [[], [], []];
  for (const row of range(net.length - 1)) {
    for (const at of range(n - 1)) {
      const a = row * n + at;
      i.push(a, a + 1); j.push(a + 1, a + n + 1); k.push(a + n, a + n);
    }
  }
  const flat = { ambient: 1, diffuse: 0, specular: 0, fresnel: 0 };
  return spatial("mesh3d", net.flat(), { i, j, k, vertexcolor: colours.flat(), opacity: 0.4, lighting: flat });
}

function clouds({ clouds, colours, surfaceColours, arrowColours }) {
  const every = (rows) => rows.filter((_, k) => k % 4 === 0);
  const both = (net) => [...every(net), ...every(range(net[0].length).map((k) => net.map((row) => row[k])))];
  return clouds.map(({ points, surface, arrows }) => [
    [
      surfaceIn(surface, surfaceColours), linesIn(both(surface), both(surfaceColours), 2), dotsIn(points, colours, 2.2),
      ...(arrows.length ? [linesIn(arrows, arrowColours.map((each) => [each, each]), 4), dotsIn(arrows.map(([, tip]) => tip), colour("paper"), 11), dotsIn(arrows.map(([, tip]) => tip), arrowColours, 8)] : []),
    ],
    layout({ scene: scene() }),
  ]);
}

// ---- choices of axes and colours ---------------------------------------------------------------------------------------
function chosen(figure, choices) { // [label, [[value, text], ...], value] each; returns the numbers that are chosen
  const box = figure.querySelector(".choices");
  if (!box.childElementCount) {
    for (const [label, options, first] of choices) {
      const select = document.createElement("select"), caption = document.createElement("label");
      select.append(...options.map(([value, text]) => new Option(text, value, value === first, value === first)));
      select.addEventListener("change", () => draw(figure));
      caption.append(label + " ", select);
      box.append(caption);
    }
  }
  return [...box.querySelectorAll("select")].map((select) => Number(select.value));
}

const colourChoice = (colourings) => ["colour", colourings.map((each, k) => [String(k), each.name]), "0"];

function coloured(n, by, at) { // traces of points by a column; at returns a trace of some of them
  const shade = (k) => `hsl(${(k * 137.5 + 195) % 360}, 50%, ${[45, 60, 35][k % 3]}%)`; // the golden angle keeps neighbours apart
  const trace = (some, color, more) => { const made = at(some); return { ...made, ...more, marker: { ...made.marker, color, ...more?.marker } }; };
  const all = range(n), others = by ? all.filter((i) => by.which[i] >= by.key.length) : [];
  if (!by) return [trace(all, colour("accent"))];
  if (by.amounts) return [trace(all, by.which, { marker: {
    colorscale: "Viridis", cmin: 0, cmax: by.n - 1,
    colorbar: { orientation: "h", thickness: 8, len: 0.7, y: -0.02, yanchor: "top", outlinewidth: 0, tickvals: [0, (by.n - 1) / 2, by.n - 1], ticktext: by.key, title: { text: plain(by.name), side: "top" } },
  } })];
  return [
    ...by.key.map((name, k) => trace(all.filter((i) => by.which[i] === k), shade(k), { name: plain(name) })),
    ...(others.length ? [trace(others, others.map((i) => shade(by.which[i])), { name: `and ${by.n - by.key.length} more` })] : []),
  ];
}

const legendOf = (by) => ({
  showlegend: Boolean(by && !by.amounts), margin: { l: 0, r: 0, t: 0, b: 70 },
  legend: { orientation: "h", y: -0.02, yanchor: "top", itemsizing: "constant", itemclick: false, itemdoubleclick: false, title: { text: by ? plain(by.name) : "" } },
});
const plane = { visible: false, range: [-1.05, 1.05], fixedrange: true };
const flatDots = (x, y) => ({ type: "scatter", mode: "markers", hoverinfo: "skip", marker: { size: 4.5 }, x, y });

function latents({ names, points, colourings }, figure) { // two axes lie flat, three rotate
  const columns = names.map((name, k) => [String(k), name]);
  const axes = ["across", "up", "away"].slice(0, names.length).map((label, k) => [label, k === 2 ? [["-1", "none"], ...columns] : columns, String(k)]);
  const picked = chosen(figure, [...axes, colourChoice(colourings)]), by = colourings[picked.pop()];
  const shownAxes = picked.filter((k) => k >= 0), deep = shownAxes.length === 3;
  const place = deep ? [shownAxes[0], shownAxes[2], shownAxes[1]] : [shownAxes[0], shownAxes[1] ?? shownAxes[0]];
  const at = (some) => (deep ? dotsIn(some.map((i) => place.map((k) => points[i][k])), "", 2.6) : flatDots(...place.map((k) => some.map((i) => points[i][k]))));
  return [[coloured(points.length, by, at), layout({ ...legendOf(by), ...(deep ? { scene: scene() } : { xaxis: plane, yaxis: { ...plane, scaleanchor: "x" } }) })]];
}

function maps({ points, colourings }, figure) { // the same samples in several planes, in the same colours
  const [k] = chosen(figure, [colourChoice(colourings)]), by = colourings[k];
  return points.map((each) => [
    coloured(each.length, by, (some) => flatDots(...[0, 1].map((axis) => some.map((i) => each[i][axis])))),
    layout({ ...legendOf(by), xaxis: plane, yaxis: { ...plane, scaleanchor: "x" } }),
  ]);
}

// ---- two dimensions --------------------------------------------------------------------------------------------------
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
      margin: { l: 42, r: 6, t: 6, b: 38 }, xaxis: axis("true", { range: truth, nticks: 4 }), yaxis: axis("recovered", { range: values, nticks: 6 }),
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
      margin: { l: 42, r: 6, t: 12, b: 40 }, xaxis: axis("step", { range: [0, last * 1.01], nticks: 6, showgrid: false }), yaxis: axis("loss", { nticks: 5 }),
      shapes: guessing === null ? [] : [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: guessing, y1: guessing, line: { color: colour("faint"), width: 1, dash: "dot" } }],
      annotations: [
        ...(guessing === null ? [] : [label(guessing, "guessing", colour("soft"), "bottom")]),
        ...curves.slice(curves.length > 1 ? 0 : 1).map((curve, k) => label(curve.loss.at(-1), curve.name, inks[k], guessing !== null && curve.loss.at(-1) > guessing - 0.2 ? "top" : "bottom")),
      ],
    }),
  ]];
}

function matrix({ values, rows }, figure) {
  const n = values.length, m = values[0].length, side = Math.min(44, Math.max(22, 200 / n));
  const left = rows.length ? 16 + 7 * Math.max(...rows.map((name) => Math.min(name.length, 30))) : 0;
  const shrink = Math.min(1, (figure.clientWidth - left) / (m * side));
  const box = figure.querySelector(".plot");
  Object.assign(box.style, { width: `${left + m * side * shrink}px`, height: `${n * side * shrink}px` });
  const hidden = { visible: false, fixedrange: true };
  return [[
    [{
      type: "heatmap", z: values, zmin: 0, zmax: 1, xgap: 2, ygap: 2, showscale: false, hovertemplate: "%{z:.3f}<extra></extra>",
      colorscale: range(11).map((k) => [k / 10, mixed(colour("paper"), colour("accent"), 0.04 + 0.96 * (k / 10) ** 2)]),
    }],
    layout({
      margin: { l: left, r: 0, t: 0, b: 0 }, xaxis: hidden,
      yaxis: rows.length ? axis("", { autorange: "reversed", tickvals: range(n), ticktext: rows.map((name) => plain(name.slice(0, 30))), showgrid: false }) : { ...hidden, autorange: "reversed" },
    }),
  ]];
}

function mixed(from, to, share) { // of two colours such as #fcfbf8
  const parts = (hex) => [1, 3, 5].map((k) => parseInt(hex.slice(k, k + 2), 16));
  const [a, b] = [parts(from), parts(to)];
  return `rgb(${a.map((value, k) => Math.round(value + share * (b[k] - value)))})`;
}

function probes({ factors, models, low }, figure) {
  const inks = [colour("accent"), colour("warn"), ...["#66a182", "#8d6a9f", "#edae49", "#8a8c92"]], n = models.length;
  figure.querySelector(".plot").style.height = `${60 + factors.length * (16 + 16 * n)}px`;
  const up = (k) => factors.map((_, i) => i + 0.7 * ((k + 0.5) / n - 0.5));
  const long = Math.max(...factors.map((name) => name.length));
  return [[
    models.flatMap(({ name, score, error, chance }, k) => [
      { type: "scatter", mode: "markers", x: chance, y: up(k), marker: { symbol: "line-ns-open", size: 10, color: colour("faint"), line: { width: 2 } }, hovertemplate: "chance %{x:.3f}<extra></extra>", showlegend: false },
      { type: "scatter", mode: "markers", name: plain(name), x: score, y: up(k), error_x: { array: error, width: 0, thickness: 1.5, color: inks[k % inks.length] }, marker: { size: 9, color: inks[k % inks.length] }, hovertemplate: `${plain(name)} %{x:.3f}<extra></extra>` },
    ]),
    layout({
      margin: { l: 16 + 7 * Math.min(long, 30), r: 12, t: 34, b: 30 }, showlegend: true, legend: { orientation: "h", y: 1, yanchor: "bottom", x: 0 },
      xaxis: axis("", { range: [low - 0.02, 1.02] }),
      yaxis: axis("", { tickvals: range(factors.length), ticktext: factors.map((name) => plain(name.slice(0, 30))), range: [factors.length - 0.5, -0.5] }),
    }),
  ]];
}

// ---- drawing ---------------------------------------------------------------------------------------------------------
const kinds = { clouds, scatters, curves, latents, maps, matrix, probes };
const figures = [...document.querySelectorAll("figure")].filter((figure) => figure.querySelector(".plot"));
const seen = new Set(figures);

function draw(figure) {
  if (!figure.offsetParent) return; // in a part that is folded
  const plots = kinds[figure.classList[0]](JSON.parse(figure.querySelector("script").textContent), figure);
  const boxes = [...figure.querySelectorAll(".plot")];
  boxes.forEach((box, k) => {
    const isNew = !box.classList.contains("js-plotly-plot");
    Plotly.react(box, plots[k][0], { ...plots[k][1], width: box.clientWidth, height: box.clientHeight }, { displayModeBar: false });
    if (!isNew || !["clouds", "latents"].includes(figure.classList[0])) return;
    const turn = (camera) => boxes.forEach((other) => other.layout.scene && Plotly.relayout(other, { "scene.camera": camera }));
    const turnOthers = (event) => boxes.forEach((other) => other !== box && event["scene.camera"] && Plotly.relayout(other, { "scene.camera": event["scene.camera"] }));
    box.on("plotly_relayouting", boxes.length > 1 ? turnOthers : () => {});
    box.onkeydown = (event) => {
      const step = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, 0.1], ArrowDown: [0, -0.1] }[event.key];
      if (!step || !box.layout.scene) return;
      event.preventDefault();
      const { x, y, z } = box.layout.scene.camera.eye;
      turn(cameraAt(Math.atan2(x, -y) + step[0], Math.max(-1.5, Math.min(1.5, Math.atan2(z, Math.hypot(x, y)) + step[1]))));
    };
  });
}

function drawAll() {
  if (window.Plotly) seen.forEach(draw);
}

// A browser keeps few WebGL contexts: figures in three dimensions are drawn only near the window.
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    if (isIntersecting) { seen.add(target); draw(target); } else { seen.delete(target); target.querySelectorAll(".plot").forEach(Plotly.purge); }
  }
}, { rootMargin: "400px" });

async function loadPlotly() {
  const source = document.getElementById("plotly-js");
  if (!source) return; // a page without plots
  const packed = Uint8Array.from(atob(source.textContent), (c) => c.charCodeAt(0));
  const script = document.createElement("script");
  script.textContent = await new Response(new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"))).text();
  document.head.append(script);
}

loadPlotly().then(() => {
  for (const figure of figures) {
    if (["clouds", "latents"].includes(figure.classList[0])) { seen.delete(figure); near.observe(figure); } else draw(figure);
  }
}).catch((error) => {
  console.error(error);
  for (const box of document.querySelectorAll(".plot")) {
    box.classList.add("failed");
    box.textContent = "This figure needs a browser of 2023 or later.";
  }
}).finally(() => root.classList.add("drawn"));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
let width = 0;
new ResizeObserver(([{ contentRect }]) => {
  if (contentRect.width !== width) requestAnimationFrame(drawAll);
  width = contentRect.width;
}).observe(document.querySelector("main"));
document.addEventListener("toggle", drawAll, true);
addEventListener("beforeprint", () => { document.querySelectorAll("details").forEach((part) => { part.open = true; }); root.classList.add("printing"); figures.forEach((figure) => seen.add(figure)); drawAll(); });
addEventListener("afterprint", () => { root.classList.remove("printing"); drawAll(); });

// A slider moves the picture behind its tile.
for (const input of document.querySelectorAll(".slider input")) {
  const show = () => input.parentElement.querySelector(".tile").style.setProperty("--column", input.value);
  input.addEventListener("input", show);
  show(); // a browser may remember where it stood
}
