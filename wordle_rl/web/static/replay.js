// The games that a run wrote into its folder.

import { ask, attempt } from "./api.js";
import { byId, make } from "./dom.js";
import { drawGame } from "./watch.js";

const NAMES = {
  games: "games of training and validation",
  validation_games: "all validation games",
  start_games: "test games of the start",
};
const PAGE = 50;

let page = 0;
let askBoard = null;
let opened = false;

function filters() {
  return {
    file: byId("replay-file").value,
    secret: byId("replay-secret").value.trim() || undefined,
    won: byId("replay-won").value || undefined,
  };
}

async function list() {
  const { file, ...rest } = filters();
  const found = await attempt(() => ask("games", { file, page, ...rest }));
  if (!found) return;
  const last = Math.max(0, Math.ceil(found.total / PAGE) - 1);
  byId("replay-count").textContent =
    found.total ? `${found.total} games, page ${page + 1} of ${last + 1}` : "No games here yet.";
  byId("newer").disabled = page <= 0;
  byId("older").disabled = page >= last;
  byId("replay-list").replaceChildren(found.total ? table(file, found.games) : "");
}

function table(file, games) {
  const head = ["step", "secret", "result", "of"].map((name) => make("th", { scope: "col" }, name));
  const rows = games.map((game) => {
    const button = make("button", { type: "button", onclick: () => show(file, game.number) },
      make("span", { class: "word" }, game.secret));
    const result = game.won ? `won in ${game.turns}` : "lost";
    return make("tr", {}, make("td", { class: "number" }, String(game.step)),
      make("td", {}, button), make("td", {}, result), make("td", {}, game.split));
  });
  return make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Games" },
    make("table", { class: "list" }, make("thead", {}, make("tr", {}, ...head)), make("tbody", {}, ...rows)));
}

async function show(file, number) {
  const game = await attempt(() => ask("replay", { file, number }));
  if (!game) return;
  const before = (turn) => [...game.given,
    ...game.turns.slice(0, turn).filter((row) => row.marks && row.guess).map((row) => [row.guess, row.marks])];
  const more = (turn) => [make("p", {}, make("button", {
    type: "button", onclick: () => askBoard(before(turn)),
  }, "What would they guess here?"))];
  drawGame(byId("replayed"), game, { more });
  byId("replayed").scrollIntoView({ block: "nearest" });
}

/** files: names of the files that may exist. board: opens the view of boards with rows. */
export function start(files, board) {
  askBoard = board;
  byId("replay-file").replaceChildren(
    ...files.map((file) => make("option", { value: file }, NAMES[file] ?? file)));
  byId("replay-form").addEventListener("submit", (event) => {
    event.preventDefault();
    page = 0;
    list();
  });
  byId("newer").addEventListener("click", () => { page -= 1; list(); });
  byId("older").addEventListener("click", () => { page += 1; list(); });
}

/** List the games when the view is opened for the first time. */
export function open() {
  if (opened) return;
  opened = true;
  list();
}
