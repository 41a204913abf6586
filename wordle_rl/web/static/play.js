// A person against a player, on one secret. Guesses are typed or pressed on the screen.

import { ask, attempt, say } from "./api.js";
import { byId, make } from "./dom.js";
import { drawBoard } from "./tiles.js";

const KEYS = ["qwertyuiop", "asdfghjkl", "zxcvbnm"];
const ORDER = { x: 1, "-": 2, "✓": 3 };
const MEANING = { x: "absent", "-": "elsewhere", "✓": "in place" };

let match = null; // the answer of the server
let typed = "";
let busy = false;
let getPlayer = null;
let askBoard = null;

function draw() {
  const rows = match ? [...match.rows] : [];
  const size = match?.max_turns ?? 6;
  if (match && !match.over) rows.push({ guess: typed.padEnd(5), marks: null, note: "" });
  drawBoard(byId("mine"), rows, { size });
  drawBoard(byId("theirs"), match?.their_rows ?? [], { size });
  byId("theirs-note").textContent = note();
  byId("play-result").textContent = match?.over ? result() : "";
  byId("give-up").disabled = byId("ask-here").disabled = !match || match.over;
  drawKeys(match?.rows ?? []);
}

function note() {
  if (!match || match.over) return "";
  if (match.they_won) return "They have found it.";
  return match.they_are_done ? "They have not found it." : "Their letters are hidden until the end.";
}

function result() {
  const mine = match.won ? `You found ${match.secret.toUpperCase()} in ${match.rows.length}.`
    : `The word was ${match.secret.toUpperCase()}.`;
  const theirs = match.they_won ? `They needed ${match.their_turns}.` : "They did not find it.";
  return `${mine} ${theirs}`;
}

function drawKeys(rows) {
  const best = {};
  for (const { guess, marks } of rows) {
    [...(marks ?? "")].forEach((mark, i) => {
      if (ORDER[mark] > (ORDER[best[guess[i]]] ?? 0)) best[guess[i]] = mark;
    });
  }
  for (const button of byId("keys").querySelectorAll("[data-letter]")) {
    const letter = button.dataset.letter;
    const mark = best[letter];
    if (mark) button.dataset.mark = mark;
    else delete button.dataset.mark;
    button.setAttribute("aria-label", mark ? `${letter}, ${MEANING[mark]}` : letter);
  }
}

function press(key) {
  if (!match || match.over || busy) return;
  if (key === "Enter") {
    guess();
    return;
  }
  if (key === "Backspace") typed = typed.slice(0, -1);
  else if (typed.length < 5) typed += key;
  say("");
  draw();
}

async function guess() {
  if (typed.length < 5) {
    say("A guess has five letters.");
    return;
  }
  busy = true;
  const answer = await attempt(() => ask("guess", { match: match.match, guess: typed }));
  busy = false;
  if (answer) {
    match = { match: match.match, ...answer };
    typed = "";
  }
  draw();
}

async function begin() {
  const player = getPlayer();
  match = null;
  typed = "";
  draw();
  byId("theirs-note").textContent = "They are playing …";
  const answer = await attempt(() => ask("new", { player }), byId("new"));
  if (answer) match = answer;
  draw();
  byId("new").blur();
}

async function giveUp() {
  const answer = await attempt(() => ask("give_up", { match: match.match }));
  if (answer) match = { match: match.match, ...answer };
  draw();
}

function listen(event) {
  const typing = event.target.closest("input, select, textarea");
  if (byId("view-play").hidden || typing || event.ctrlKey || event.metaKey || event.altKey) return;
  const pressed = event.target.closest("button, a"); // Enter belongs to it
  if (/^[a-zA-Z]$/.test(event.key)) press(event.key.toLowerCase());
  else if (event.key === "Backspace" || (event.key === "Enter" && !pressed)) press(event.key);
  else return;
  event.preventDefault();
}

function buildKeys() {
  const onKey = (key) => (event) => {
    press(key);
    if (event.detail > 0) event.currentTarget.blur(); // pressed with a pointer
  };
  const rows = KEYS.map((letters) => make("div", {}, ...[...letters].map((letter) =>
    make("button", { type: "button", "data-letter": letter, "aria-label": letter, onclick: onKey(letter) }, letter))));
  rows[2].prepend(make("button", { type: "button", class: "wide", onclick: onKey("Enter") }, "Enter"));
  rows[2].append(make("button", { type: "button", class: "wide", onclick: onKey("Backspace") }, "Delete"));
  byId("keys").replaceChildren(...rows);
}

/** player: gives the key of the chosen player. board: opens the view of boards with rows. */
export function start(player, board) {
  getPlayer = player;
  askBoard = board;
  buildKeys();
  document.addEventListener("keydown", listen);
  byId("new").addEventListener("click", begin);
  byId("give-up").addEventListener("click", giveUp);
  byId("ask-here").addEventListener("click", () => askBoard(match.rows.map((row) => [row.guess, row.marks])));
}

/** Begin the first game when the view is opened. */
export function open() {
  if (!match && !busy) begin();
}

/** Begin a new game, because another player was chosen. */
export const changed = begin;

/** Let the next opening of the view begin a new game. */
export function forget() {
  match = null;
}
