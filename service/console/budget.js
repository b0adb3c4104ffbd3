// How much privacy is left: a gauge, and what the question in the box would take from it.

import { brief, el, percent, svg } from "./dom.js";

// A bar from 0 to granted: spent, what this question would take, and the rest.
export function gauge({ granted, left, after = left, label }) {
  const whole = Number(granted) || 1;
  const part = (amount) => Math.max(0, Math.min(100, (Number(amount) / whole) * 100));
  const spent = 100 - part(left);
  const taken = part(left) - part(after);
  return el("div", {
    class: "gauge", role: "meter", "aria-label": label, "aria-valuemin": "0",
    "aria-valuemax": String(granted), "aria-valuenow": String(left), "aria-valuetext": `${brief(left)} of ${brief(granted)} left`,
  }, svg("svg", { width: "100%", height: "10", "aria-hidden": "true" },
    svg("rect", { class: "gauge-left", width: "100%", height: "10", rx: "3" }),
    svg("rect", { class: "gauge-taken", x: `${spent}%`, width: `${taken}%`, height: "10" }),
    svg("rect", { class: "gauge-spent", width: `${spent}%`, height: "10", rx: "3" })));
}

// The card beside the question.
export function budgetCard(budget, after) {
  const { granted, spent, remaining, quota } = budget;
  return [
    el("h2", {}, "Privacy budget"),
    el("p", { class: "figure" }, el("strong", {}, `ε ${brief(remaining.epsilon)}`), ` of ${brief(granted.epsilon)} left`),
    gauge({ granted: granted.epsilon, left: remaining.epsilon, after: after?.epsilon, label: "Privacy budget" }),
    el("p", { class: "hint" }, `Granted ε ${brief(granted.epsilon)} at δ ${brief(granted.delta)}; spent ε ${brief(spent.epsilon)}. `,
      `For finding groups δ ${brief(remaining.delta)} is left.`),
    budget.weak && el("p", { class: "warn" }, `A ${budget.weak}.`),
    quota.share !== null && [
      el("p", { class: "figure" }, "Your ration: ", el("strong", {}, percent(quota.remaining)), ` of ${percent(quota.share)} of it left`),
      gauge({ granted: quota.share, left: quota.remaining, label: "Your ration" }),
    ],
    budget.window && el("p", { class: "hint" }, `Renewed every ${budget.window.period}.`),
    budget.like_your_last !== null && budget.like_your_last !== undefined &&
      el("p", { class: "hint" }, `About ${budget.like_your_last} more like your last.`),
    budget.paused && el("p", { class: "warn" }, "Questions are paused until an admin looks."),
  ].flat().filter(Boolean);
}
