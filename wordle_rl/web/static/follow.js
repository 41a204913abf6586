// A run that is training: its curve and its newest games, asked for every few seconds.

import { ask, say } from "./api.js";
import { byId, make } from "./dom.js";
import { drawBoard } from "./tiles.js";

const EVERY = 4000; // milliseconds
const MOST_WIDTH = 720, HEIGHT = 260, LEFT = 48, BOTTOM = 30, TOP = 12, RIGHT = 14;

let timer = null;

function svg(tag, attributes, text = "") {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.textContent = text;
  return element;
}

function curve(curves, step) {
  const WIDTH = Math.min(MOST_WIDTH, byId("follow-curve").clientWidth); // so that text keeps its size
  const last = Math.max(step, 1);
  const x = (at) => LEFT + (at / last) * (WIDTH - LEFT - RIGHT);
  const y = (share) => HEIGHT - BOTTOM - share * (HEIGHT - BOTTOM - TOP);
  const picture = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, class: "curve", role: "img" });
  const latest = (name) => (curves[name]?.length ? `${(100 * curves[name].at(-1)[1]).toFixed(1)} %` : "none");
  picture.setAttribute("aria-label",
    `Games won up to step ${step}: training ${latest("train")}, validation ${latest("val")}`);
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    picture.append(svg("line", { x1: LEFT, x2: WIDTH - RIGHT, y1: y(share), y2: y(share), class: "grid" }));
    picture.append(svg("text", { x: LEFT - 6, y: y(share) + 4, "text-anchor": "end" }, `${100 * share} %`));
  }
  for (const at of [0, last]) {
    picture.append(svg("text", { x: x(at), y: HEIGHT - 10, "text-anchor": at ? "end" : "start" }, `step ${at}`));
  }
  for (const name of ["train", "val"]) {
    const points = curves[name] ?? [];
    picture.append(svg("polyline", { class: name, points: points.map(([at, v]) => `${x(at)},${y(v)}`).join(" ") }));
  }
  for (const [at, share] of curves.val ?? []) {
    picture.append(svg("circle", { cx: x(at), cy: y(share), r: 3.5, class: "val-dot" }));
  }
  const legend = make("p", {}, `Games won: training (thin line) ${latest("train")}, `
    + `validation (thick line with dots) ${latest("val")}.`);
  return [picture, legend];
}

function board(game) {
  const list = make("ol", { class: "board small", "aria-label": `The game on ${game.secret}` });
  const given = game.given.map(([guess, marks]) => ({ guess, marks, note: "given" }));
  drawBoard(list, [...given, ...game.turns]);
  const title = `${game.secret.toUpperCase()}, step ${game.step}: ${game.won ? "won" : "lost"}`;
  return make("div", {}, make("p", {}, title), list);
}

async function refresh() {
  try {
    const run = await ask("follow");
    const reason = run.reason ? ` (${run.reason})` : "";
    const state = `${run.name}: ${run.status}${reason}, step ${run.step}`;
    if (byId("follow-state").textContent !== state) byId("follow-state").textContent = state;
    byId("follow-curve").replaceChildren(...curve(run.curves, run.step));
    byId("follow-boards").replaceChildren(...run.boards.map(board));
  } catch (error) {
    say(error.message);
    close();
  }
}

function tick() {
  if (!document.hidden) refresh();
}

export function open() {
  close();
  refresh();
  timer = setInterval(tick, EVERY);
}

export function close() {
  clearInterval(timer);
  timer = null;
}
