// Draws boards as Wordle does. Each row also says in words what its colours mean.

import { make } from "./dom.js";

const MEANING = { x: "absent", "-": "elsewhere", "✓": "in place" };

function describe(row) {
  if (row.guess === null && row.marks === null) return row.note || "no guess";
  const letters = [...(row.guess ?? "?????")];
  if (row.marks === null) return `${letters.join("")}: ${row.note || "not played yet"}`;
  const marks = [...row.marks];
  return marks
    .map((mark, i) => (row.guess ? `${letters[i]} ${MEANING[mark]}` : MEANING[mark]))
    .join(", ");
}

function tilesOf(row) {
  const letters = [...(row.guess ?? "")];
  const marks = [...(row.marks ?? "")];
  return [0, 1, 2, 3, 4].map((i) =>
    make("span", { class: "tile", "data-mark": marks[i], "aria-hidden": "true" }, letters[i] ?? ""),
  );
}

/**
 * Fill a list with rows {guess, marks, note}. A guess of null is hidden or unreadable, marks of
 * null are a row without feedback. size: rows in all. choose: called with the number of a row that
 * is pressed; then rows are buttons.
 */
export function drawBoard(list, rows, { size = 0, choose = null, chosen = -1 } = {}) {
  const items = rows.map((row, number) => {
    const said = make("span", { class: "unseen" }, describe(row));
    const note = row.note ? make("span", { class: "note", "aria-hidden": "true" }, row.note) : null;
    if (!choose) return make("li", {}, said, ...tilesOf(row), note);
    const button = make(
      "button",
      {
        type: "button", class: "row", "aria-pressed": String(number === chosen),
        onclick: () => choose(number),
      },
      said,
      ...tilesOf(row),
    );
    return make("li", {}, button, note);
  });
  for (let i = rows.length; i < size; i += 1) {
    const empty = { guess: null, marks: null, note: "" };
    items.push(make("li", {}, make("span", { class: "unseen" }, "empty"), ...tilesOf(empty)));
  }
  list.replaceChildren(...items);
}
