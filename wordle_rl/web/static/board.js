// A board made by hand, and what two players would guess on it.

import { ask, attempt, say } from "./api.js";
import { byId, make } from "./dom.js";
import { drawThought } from "./thought.js";

const NEXT = { x: "-", "-": "✓", "✓": "x" };
const MEANING = { x: "absent", "-": "elsewhere", "✓": "in place" };
const MOST = 5;

let rows = []; // [guess, marks]

function draw() {
  byId("board-rows").replaceChildren(...rows.map(drawRow));
  byId("add-row").disabled = rows.length >= MOST;
}

function drawRow([guess, marks], number) {
  const tiles = [0, 1, 2, 3, 4].map((place) => {
    const tile = make("button", {
      type: "button", class: "tile", onclick: () => {
        const all = [...rows[number][1]];
        all[place] = NEXT[all[place]];
        rows[number][1] = all.join("");
        paint(place);
      },
    });
    return tile;
  });
  const paint = (place) => {
    const [word, all] = rows[number];
    const letter = word[place] ?? "";
    const mark = [...all][place];
    tiles[place].dataset.mark = mark;
    tiles[place].textContent = letter;
    tiles[place].setAttribute("aria-label", `${letter || `letter ${place + 1}`}: ${MEANING[mark]}`);
  };
  const field = make("input", {
    maxlength: 5, value: guess, autocomplete: "off", autocapitalize: "off", spellcheck: "false",
    "aria-label": `Guess ${number + 1}`,
    oninput: () => {
      rows[number][0] = field.value.toLowerCase();
      tiles.forEach((_, place) => paint(place));
    },
  });
  tiles.forEach((_, place) => paint(place));
  const remove = make("button", {
    type: "button", "aria-label": `Remove guess ${number + 1}`,
    onclick: () => {
      rows.splice(number, 1);
      draw();
    },
  }, "×");
  return make("fieldset", {}, make("legend", { class: "unseen" }, `Row ${number + 1}`), field, ...tiles, remove);
}

function addRow() {
  rows.push(["", "xxxxx"]);
  draw();
  byId("board-rows").querySelector("fieldset:last-child input").focus();
}

function drawAnswer(answer, label) {
  const guess = answer.guess ? answer.guess.toUpperCase() : `no guess (${answer.reason})`;
  const turn = { guess: answer.guess, note: "", facts: answer.facts, text: answer.text };
  return make("div", {}, make("h3", {}, `${label}: `, make("span", { class: "word" }, guess)),
    ...drawThought(turn, answer.chances));
}

async function askBoth(players, button) {
  const filled = rows.filter(([guess]) => guess !== "");
  const place = byId("asked");
  place.replaceChildren();
  await attempt(async () => {
    for (const [key, label] of players) {
      const answer = await ask("board", { player: key, rows: filled });
      place.append(drawAnswer(answer, label));
    }
  }, button);
}

/** The board of the view from now on. given: pairs of a guess and its marks. */
export function setRows(given) {
  rows = given.map((row) => [...row]);
  byId("asked").replaceChildren();
  draw();
}

/** player, rival: give the key and the label of the two players. */
export function start(player, rival) {
  byId("add-row").addEventListener("click", addRow);
  byId("clear-rows").addEventListener("click", () => {
    setRows([["", "xxxxx"]]);
    say("");
  });
  byId("board-form").addEventListener("submit", (event) => {
    event.preventDefault();
    const both = player()[0] === rival()[0] ? [player()] : [player(), rival()];
    askBoth(both, event.submitter);
  });
  setRows([["", "xxxxx"]]);
}
