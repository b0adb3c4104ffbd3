// What the bounds on one person leave out of a value: no interval contains it, so it stands beside the name.

import { el, number, percent } from "./dom.js";

const isNothing = ({ lost }) => lost !== null && lost[1] === 0;

function told({ of, lost }, share) {
  if (typeof share === "number") return `≤ ${percent(share)} clipped`;
  return lost === null ? "clipping not known" : `≤ ${number(lost[1])} ${of} clipped`;
}

// A badge for a column of an answer or an estimate; null where nothing is left out, or where an old answer says nothing.
export function clippedBadge(column) {
  if (!column.clipped || isNothing(column.clipped)) return null;
  return el("span", { class: "tag clipped", title: column.clipped.words }, told(column.clipped, column.clipped_share));
}

// All badges of an answer with the names they belong to, for where a chart stands instead of a table.
export function clippedLine(answer) {
  const found = answer.columns.filter((column) => clippedBadge(column) !== null);
  return found.length > 0 && el("p", { class: "hint" }, found.map((column) => [`${column.name} `, clippedBadge(column), " "]));
}
