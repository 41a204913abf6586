// Shows one view at a time, named by the part of the address behind #.

import { ask, attempt, say } from "./api.js";
import * as board from "./board.js";
import { byId, make } from "./dom.js";
import * as follow from "./follow.js";
import * as play from "./play.js";
import * as replay from "./replay.js";
import * as watch from "./watch.js";

const VIEWS = ["play", "watch", "board", "replay", "follow"];
const OF_A_RUN = ["replay", "follow"];
const OPEN = { play: play.open, replay: replay.open, follow: follow.open };

function show() {
  const named = location.hash.slice(1);
  const view = VIEWS.includes(named) ? named : "play";
  for (const name of VIEWS) byId(`view-${name}`).hidden = name !== view;
  for (const link of document.querySelectorAll("nav a")) {
    if (link.hash === `#${view}`) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  follow.close();
  say("");
  OPEN[view]?.();
}

function fill(select, players, chosen) {
  select.replaceChildren(...players.map(({ key, label }) =>
    make("option", { value: key, selected: key === chosen }, label)));
}

const keyOf = (select) => () => select.value;
const both = (select) => () => [select.value, select.selectedOptions[0].textContent];

function namePlayer() {
  for (const place of document.querySelectorAll("[data-player]")) {
    place.textContent = byId("player").selectedOptions[0].textContent;
  }
}

async function start() {
  const about = await attempt(() => ask("about"));
  if (!about) return;
  const [player, rival] = [byId("player"), byId("rival")];
  fill(player, about.players, about.first);
  fill(rival, about.players, about.rival);
  namePlayer();
  if (!about.run) {
    for (const view of OF_A_RUN) document.querySelector(`nav a[href="#${view}"]`).remove();
  }
  const toBoard = (rows) => {
    board.setRows(rows.length ? rows : [["", "xxxxx"]]);
    location.hash = "board";
  };
  play.start(keyOf(player), toBoard);
  watch.start(keyOf(player));
  board.start(both(player), both(rival));
  replay.start(about.files, toBoard);
  player.addEventListener("change", () => {
    namePlayer();
    player.blur();
    if (!byId("view-play").hidden) play.changed();
    else play.forget();
  });
  window.addEventListener("hashchange", show);
  show();
}

start();
