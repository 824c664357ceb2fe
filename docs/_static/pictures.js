// Pictures that answer sliders, drawn in every <div data-picture="...">.
"use strict";

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children. */
function make(name, attributes = {}, ...children) {
  const svg = ["svg", "g", "path", "line", "rect", "text", "title"];
  const element = svg.includes(name)
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  for (const [key, value] of Object.entries(attributes))
    element.setAttribute(key, value);
  element.append(...children);
  return element;
}

/** A control with its name and its value beside it; adds it to a place. */
function control(place, name, input, shown = (value) => value) {
  const value = make("output");
  const show = () => (value.textContent = shown(input.value));
  input.addEventListener("input", show);
  show();
  place.append(
    make("label", {}, make("span", {}, name), input, input.type === "range" ? value : ""),
  );
  return input;
}

const slider = (max, value) =>
  make("input", { type: "range", min: 0, max, value });
const choice = (options) =>
  make("select", {}, ...options.map((text) => make("option", {}, text)));

/** Red below zero, blue above, white at zero, as in the package's own pictures. */
function color(x) {
  const a = Math.min(1, Math.abs(x));
  const [r, g, b] = x > 0 ? [33, 102, 172] : [178, 24, 43];
  return [r, g, b].map((c) => 247 + (c - 247) * a);
}

/** Draws a matrix, a pixel for each number; a cross marks a row and a column. */
function heat(canvas, rows, columns, value, [row, column]) {
  canvas.width = columns;
  canvas.height = rows;
  const context = canvas.getContext("2d");
  const picture = context.createImageData(columns, rows);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const on = i === row || j === column;
      const rgb = color(value(i, j)).map((c) => (on ? c * 0.72 : c));
      picture.data.set([...rgb, 255], 4 * (i * columns + j));
    }
  context.putImageData(picture, 0, 0);
}

/** Lines over a common axis: {name, values, class} each, with a mark at one place. */
function plot(place, lines, { low, high, labels, mark, bars = false }) {
  const [height, left, bottom] = [190, 44, 26];
  const width = Math.min(560, place.clientWidth || 560);
  const count = lines[0].values.length;
  const x = (i) => left + ((i + (bars ? 0.5 : 0)) / (count - (bars ? 0 : 1))) * (width - left - 8);
  const y = (v) => 8 + ((high - v) / (high - low)) * (height - bottom - 8);
  const svg = make("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" });
  svg.setAttribute("aria-label", lines.map((line) => line.name).join(", "));
  for (const v of [low, (low + high) / 2, high]) {
    svg.append(
      make("line", { class: "grid", x1: left, x2: width - 8, y1: y(v), y2: y(v) }),
      make("text", { x: left - 6, y: y(v) + 4, "text-anchor": "end" }, `${+v.toFixed(2)}`),
    );
  }
  labels.forEach((label, i) => {
    if (label === "") return;
    svg.append(
      make("text", { x: x(i), y: height - 8, "text-anchor": i === labels.length - 1 && !bars ? "end" : "middle" }, label),
    );
  });
  for (const line of lines) {
    if (bars) {
      const wide = (width - left - 8) / count - 1.5;
      line.values.forEach((v, i) =>
        svg.append(
          make("rect", {
            class: i === mark ? "bar marked" : "bar",
            x: x(i) - wide / 2, width: wide, y: y(v), height: Math.max(0, y(low) - y(v)),
          }),
        ),
      );
    } else {
      const points = line.values.map((v, i) => `${x(i).toFixed(1)},${y(v).toFixed(1)}`);
      const path = make("path", { class: line.class ?? "curve", d: `M${points.join("L")}` });
      path.append(make("title", {}, line.name));
      svg.append(path);
    }
  }
  if (mark !== undefined && !bars)
    svg.append(make("line", { class: "mark", x1: x(mark), x2: x(mark), y1: 8, y2: height - bottom }));
  place.replaceChildren(svg);
}

const every = (count, step) =>
  Array.from({ length: count }, (_, i) => (i % step === 0 ? `${i}` : ""));

function sinusoid(place) {
  const controls = make("div", { class: "controls" });
  const rows = 128;
  const position = control(controls, "position", slider(rows - 1, 20));
  const column = control(controls, "dimension", slider(63, 8));
  const width = control(controls, "width", choice(["64", "16", "128"]));
  const layout = control(controls, "layout", choice(["interleaved", "halves"]));
  const canvas = make("canvas", { class: "heat", role: "img" });
  const [wave, near] = [make("div"), make("div")];
  const says = make("p", { class: "says", "aria-live": "polite" });
  place.append(
    controls, says, canvas,
    make("p", { class: "about" }, "All values: a row for each position, a column for each dimension; blue is above 0, red below."),
    wave, make("p", { class: "about" }, "The chosen dimension over the positions."),
    near, make("p", { class: "about" }, "How alike the chosen position is to each other one: the scalar product, by its largest value."),
  );
  const draw = () => {
    const dim = Number(width.value);
    column.max = dim - 1;
    column.dispatchEvent(new Event("shown"));
    const [p, d] = [Number(position.value), Number(column.value)];
    const halves = layout.value === "halves";
    const pair = (j) => (halves ? j % (dim / 2) : Math.floor(j / 2));
    const isSine = (j) => (halves ? j < dim / 2 : j % 2 === 0);
    const rate = (j) => 10000 ** ((-2 * pair(j)) / dim);
    const value = (i, j) => (isSine(j) ? Math.sin : Math.cos)(i * rate(j));
    heat(canvas, rows, dim, value, [p, d]);
    canvas.setAttribute("aria-label", `The encoding of ${rows} positions in ${dim} dimensions`);
    const all = Array.from({ length: rows }, (_, i) => i);
    plot(wave, [{ name: `dimension ${d}`, values: all.map((i) => value(i, d)) }],
      { low: -1, high: 1, labels: every(rows, 16), mark: p });
    const alike = all.map((i) => {
      let sum = 0;
      for (let k = 0; k < dim / 2; k++) sum += Math.cos((i - p) * 10000 ** ((-2 * k) / dim));
      return sum / (dim / 2);
    });
    plot(near, [{ name: `similarity to position ${p}`, values: alike }],
      { low: -0.2, high: 1, labels: every(rows, 16), mark: p });
    const length = (2 * Math.PI) / rate(d);
    says.textContent =
      `Position ${p}, dimension ${d}: ${isSine(d) ? "sin" : "cos"}(${p} · ${rate(d).toPrecision(3)}) = ` +
      `${value(p, d).toFixed(4)}. It repeats after ${length < 1000 ? length.toFixed(1) : Math.round(length)} positions.`;
  };
  for (const input of [position, column, width, layout]) input.addEventListener("input", draw);
  width.addEventListener("input", () => column.dispatchEvent(new Event("input")));
  canvas.addEventListener("click", (event) => {
    const box = canvas.getBoundingClientRect();
    position.value = Math.floor(((event.clientY - box.top) / box.height) * rows);
    column.value = Math.floor(((event.clientX - box.left) / box.width) * Number(width.value));
    for (const input of [position, column]) input.dispatchEvent(new Event("input"));
  });
  draw();
}

function attention(place) {
  const { length, scores } = SCORES;
  const controls = make("div", { class: "controls" });
  const scheme = control(controls, "position", choice(["none", ...Object.keys(scores)]));
  const query = control(controls, "query", slider(length - 1, 24));
  const head = control(controls, "head", slider(7, 0));
  const causal = control(controls, "causal", make("input", { type: "checkbox" }));
  scheme.value = "alibi";
  const bars = make("div");
  const canvas = make("canvas", { class: "heat square", role: "img" });
  const says = make("p", { class: "says", "aria-live": "polite" });
  place.append(
    controls, says, bars,
    make("p", { class: "about" }, "How much the query attends to each key."),
    canvas, make("p", { class: "about" }, "All queries (rows) and keys (columns), by the largest weight."),
  );
  const weights = (q) => {
    const line = scores[scheme.value]?.[Number(head.value)];
    const last = causal.checked ? q : length - 1;
    const e = Array.from({ length }, (_, k) => (k > last ? 0 : Math.exp(line ? line[k - q + length - 1] - line[length - 1] : 0)));
    const sum = e.reduce((a, b) => a + b);
    return e.map((x) => x / sum);
  };
  const draw = () => {
    const q = Number(query.value);
    const all = Array.from({ length }, (_, i) => weights(i));
    const most = Math.max(...all.flat());
    plot(bars, [{ name: `attention of query ${q}`, values: all[q] }],
      { low: 0, high: Math.max(...all[q]), labels: every(length, 8), mark: q, bars: true });
    heat(canvas, length, length, (i, j) => all[i][j] / most, [q, -1]);
    canvas.setAttribute("aria-label", `The attention of ${length} queries to ${length} keys`);
    const near = all[q].reduce((sum, x, k) => sum + (Math.abs(k - q) <= 4 ? x : 0), 0);
    says.textContent = `${scheme.value}: query ${q} gives ${(100 * near).toFixed(0)}% of its attention to the keys at most 4 away.`;
  };
  for (const input of [scheme, query, head, causal]) input.addEventListener("input", draw);
  draw();
}

/** Lines of the page's table by the number of words: a row for each, lengths as columns. */
function extrapolation(place) {
  const table = [...document.querySelectorAll("table")].find((each) =>
    [...each.tHead.rows[0].cells].some((cell) => /words$/.test(cell.textContent.trim())));
  const heads = [...table.tHead.rows[0].cells].map((cell) => cell.textContent.trim());
  const columns = heads.map((_, i) => i).filter((i) => /words$/.test(heads[i]));
  const lines = [...table.tBodies[0].rows].map((row) => ({
    name: row.cells[0].textContent.trim(),
    values: columns.map((i) => parseFloat(row.cells[i].textContent)),
  }));
  const shown = new Set(["sinusoidal", "shaw", "randomized", "alibi"]);
  const controls = make("div", { class: "controls chosen" });
  const drawn = make("div");
  const draw = () => {
    const chosen = lines.filter((line) => shown.has(line.name));
    plot(drawn, [
      { name: "chance", values: columns.map(() => 50), class: "grid" },
      ...chosen.map((line) => ({ ...line, class: `curve line-${lines.indexOf(line)}` })),
    ], { low: 45, high: 100, labels: columns.map((i) => heads[i].replace(" words", "")) });
  };
  lines.forEach((line, i) => {
    const box = make("input", { type: "checkbox" });
    box.checked = shown.has(line.name);
    box.addEventListener("input", () => {
      if (box.checked) shown.add(line.name);
      else shown.delete(line.name);
      draw();
    });
    controls.append(make("label", { class: `key line-${i}` }, box, line.name));
  });
  place.append(controls, drawn, make("p", { class: "about" }, "Accuracy in % by the number of words; 50 is chance."));
  draw();
}

const PICTURES = { sinusoid, attention, extrapolation };
for (const place of document.querySelectorAll("[data-picture]"))
  PICTURES[place.dataset.picture](place);
