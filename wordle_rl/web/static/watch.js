// A game that a player plays alone, turn by turn, with its probabilities.

import { ask, attempt } from "./api.js";
import { byId, make } from "./dom.js";
import { drawThought } from "./thought.js";
import { drawBoard } from "./tiles.js";

/**
 * A game beside what is known of one of its turns, in `place`. think: asks for the probabilities
 * of a turn; null where there are none to ask for. more: elements below a turn, made of its number.
 */
export function drawGame(place, game, { think = null, more = () => [] } = {}) {
  const list = make("ol", { class: "board", "aria-label": `The game on ${game.secret}` });
  const panel = make("div", { "aria-live": "polite" });
  const given = (game.given ?? []).map(([guess, marks]) => ({ guess, marks, note: "given" }));
  const known = new Map();
  const title = `${game.secret.toUpperCase()}: ${game.won ? `won in ${game.turns.length}` : "lost"}`;
  place.replaceChildren(make("div", {}, make("h3", {}, title), list), panel);

  async function choose(row) {
    const number = row - given.length;
    drawBoard(list, [...given, ...game.turns], { choose, chosen: row });
    list.querySelectorAll("button")[row]?.focus({ preventScroll: true });
    if (number < 0) {
      panel.replaceChildren(make("p", { class: "muted" }, "This guess was given."));
      return;
    }
    const turn = game.turns[number];
    const head = make("h3", {}, `Turn ${number + 1}`);
    const waiting = think && !known.has(number) ? make("p", { class: "muted" }, "Thinking …") : null;
    const show = (chances) =>
      panel.replaceChildren(head, ...drawThought(turn, chances), ...more(number));
    show(think ? known.get(number) : undefined);
    if (!waiting) return;
    panel.append(waiting);
    const chances = await attempt(() => think(number));
    waiting.remove();
    if (chances === null) return;
    known.set(number, chances.chances);
    if (panel.firstChild === head) show(chances.chances); // no other turn was chosen meanwhile
  }

  list.addEventListener("keydown", (event) => {
    const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
    const buttons = [...list.querySelectorAll("button")];
    const next = buttons.indexOf(document.activeElement) + step;
    if (!step || next < 0 || next >= buttons.length) return;
    event.preventDefault();
    choose(next);
  });
  drawBoard(list, [...given, ...game.turns], { choose });
  if (game.turns.length) choose(given.length);
}

/** player: gives the key of the chosen player. */
export function start(player) {
  byId("watch-form").addEventListener("submit", async (event) => {
    event.preventDefault();
    const secret = byId("watch-secret").value.trim() || undefined;
    const button = event.target.querySelector("button");
    const game = await attempt(() => ask("watch", { player: player(), secret }), button);
    if (game) {
      drawGame(byId("watched"), game, { think: (turn) => ask("think", { game: game.game, turn }) });
    }
  });
}
