// One key and one value: bars, or a line where the key is a date, each with the interval of its noise.
// Drawn at the width that there is, so that letters stay letters on a narrow screen.

import { el, number, svg } from "./dom.js";

const BARS_MAX = 40;
const POINTS_MAX = 2000;
const WHISKERS_MAX = 60;
const BAR = 26;
const DATE = /^\d{4}-\d\d-\d\d/;

// A figure that draws itself when it is shown and whenever its width changes; null if there is nothing to draw.
export function chartOf(answer) {
  const points = pointsOf(answer);
  if (points === null) return null;
  const { key, value } = columnsOf(answer);
  const dated = points.every((point) => DATE.test(point.key));
  if (!dated && points.length > BARS_MAX) return null;
  const figure = el("figure", { class: "chart" });
  const label = `${value.name} by ${key.name}, ${points.length} ${dated ? "points" : "bars"} with 95 % intervals; the table has the numbers`;
  const draw = dated && points.length > 2 ? line : bars;
  new ResizeObserver((entries) => {
    const width = Math.floor(entries[0].contentRect.width);
    if (width > 0 && figure.dataset.width !== String(width)) {
      figure.dataset.width = String(width);
      figure.replaceChildren(draw(points, width, label));
    }
  }).observe(figure);
  return figure;
}

function columnsOf(answer) {
  const keys = answer.columns.filter((column) => column.role === "key");
  const values = answer.columns.filter((column) => column.role === "value");
  return keys.length === 1 && values.length === 1 && answer.columns.length === 2 ? { key: keys[0], value: values[0] } : {};
}

function pointsOf(answer) {
  const { key, value } = columnsOf(answer);
  if (!key || answer.rows.length < 2 || answer.rows.length > POINTS_MAX) return null;
  const [k, v] = [answer.columns.indexOf(key), answer.columns.indexOf(value)];
  const points = answer.rows.map((row, index) => ({
    key: row[k] === null ? "NULL" : String(row[k]),
    value: row[v],
    low: answer.low_95?.[index]?.[v] ?? row[v],
    high: answer.high_95?.[index]?.[v] ?? row[v],
  }));
  const numeric = points.every((point) => [point.value, point.low, point.high].every((each) => typeof each === "number"));
  return numeric ? points : null;
}

// Round numbers that cover [low, high], about `count` of them.
export function ticks(low, high, count) {
  const rough = (high - low || Math.abs(high) || 1) / count;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((each) => each * power >= rough) * power;
  const first = Math.floor(low / step + 1e-9);
  const last = Math.ceil(high / step - 1e-9);
  return Array.from({ length: last - first + 1 }, (_, index) => Number(((first + index) * step).toPrecision(12)));
}

const short = new Intl.NumberFormat("en", { notation: "compact", maximumSignificantDigits: 4 });
const cut = (text, letters) => (text.length > letters ? `${text.slice(0, letters - 1)}…` : text);
const whiskers = (x1, y1, x2, y2) => {
  const [dx, dy] = x1 === x2 ? [3, 0] : [0, 5];
  return svg("path", { class: "whisker", d: `M${x1} ${y1}L${x2} ${y2}M${x1 - dx} ${y1 - dy}L${x1 + dx} ${y1 + dy}M${x2 - dx} ${y2 - dy}L${x2 + dx} ${y2 + dy}` });
};
const titled = (point) => svg("title", {}, `${point.key}: ${number(point.value)} [${number(point.low)}, ${number(point.high)}]`);

function bars(points, width, label) {
  const letters = Math.max(4, Math.floor(width / 30));
  const left = 12 + 8.5 * Math.min(letters, Math.max(...points.map((point) => point.key.length)));
  const scale = ticks(Math.min(0, ...points.map((point) => point.low)), Math.max(0, ...points.map((point) => point.high)), Math.max(2, width / 130));
  const [from, to] = [scale[0], scale[scale.length - 1]];
  const x = (value) => left + ((value - from) / (to - from || 1)) * (width - left - 18);
  const bottom = points.length * BAR + 4;
  return svg("svg", { width, height: bottom + 22, role: "img", "aria-label": label },
    scale.map((tick) => [
      svg("path", { class: tick === 0 ? "axis" : "grid", d: `M${x(tick)} 0V${bottom}` }),
      svg("text", { class: "tick", x: x(tick), y: bottom + 16, "text-anchor": "middle" }, short.format(tick)),
    ]),
    points.map((point, index) => {
      const middle = index * BAR + BAR / 2 + 2;
      const [a, b] = [x(Math.min(0, point.value)), x(Math.max(0, point.value))];
      return svg("g", {}, titled(point),
        svg("text", { class: "key", x: left - 8, y: middle + 4, "text-anchor": "end" }, cut(point.key, letters)),
        svg("rect", { class: "bar", x: a, y: middle - 8, width: Math.max(1, b - a), height: 16, rx: 2 }),
        point.low !== point.high && whiskers(x(point.low), middle, x(point.high), middle));
    }));
}

function line(points, width, label) {
  const sorted = points.map((point) => ({ ...point, time: Date.parse(point.key) })).sort((a, b) => a.time - b.time);
  const lowest = Math.min(...sorted.map((point) => point.low));
  const highest = Math.max(...sorted.map((point) => point.high));
  const scale = ticks(lowest > 0 && lowest < 0.6 * highest ? 0 : lowest, highest, 5);
  const [height, left, right, top] = [240, 52, 14, 10];
  const bottom = height - 26;
  const [from, to] = [scale[0], scale[scale.length - 1]];
  const [first, last] = [sorted[0].time, sorted[sorted.length - 1].time];
  const x = (time) => left + ((time - first) / (last - first || 1)) * (width - left - right);
  const y = (value) => bottom - ((value - from) / (to - from || 1)) * (bottom - top);
  const path = (each) => each.map((point, index) => `${index ? "L" : "M"}${x(point.time).toFixed(1)} ${y(point.at).toFixed(1)}`).join("");
  const band = [...sorted.map((p) => ({ time: p.time, at: p.high })), ...sorted.toReversed().map((p) => ({ time: p.time, at: p.low }))];
  const named = dayTicks(sorted, Math.max(2, Math.floor((width - left) / 150)));
  return svg("svg", { width, height, role: "img", "aria-label": label },
    scale.map((tick) => [
      svg("path", { class: tick === 0 ? "axis" : "grid", d: `M${left} ${y(tick)}H${width - right}` }),
      svg("text", { class: "tick", x: left - 8, y: y(tick) + 4, "text-anchor": "end" }, short.format(tick)),
    ]),
    svg("path", { class: "band", d: `${path(band)}Z` }),
    sorted.length <= WHISKERS_MAX && sorted.map((p) => whiskers(x(p.time), y(p.low), x(p.time), y(p.high))),
    svg("path", { class: "line", d: path(sorted.map((p) => ({ time: p.time, at: p.value }))) }),
    sorted.length <= WHISKERS_MAX && sorted.map((p) => svg("circle", { class: "dot", cx: x(p.time), cy: y(p.value), r: 2.2 }, titled(p))),
    named.map((p, index) => svg("text", {
      class: "tick", x: x(p.time), y: height - 6,
      "text-anchor": index === 0 ? "start" : index === named.length - 1 ? "end" : "middle",
    }, p.key.slice(0, 10))));
}

// First, last and some between, evenly by position.
function dayTicks(sorted, count) {
  const step = (sorted.length - 1) / Math.min(count, sorted.length - 1);
  return Array.from({ length: Math.min(count, sorted.length - 1) + 1 }, (_, index) => sorted[Math.round(index * step)]);
}
