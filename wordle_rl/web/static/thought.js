// What is known of a turn: the words left, bits, reward parts, and a player's probabilities.

import { bar, make, percent, whole } from "./dom.js";

function facts(turn) {
  const known = turn.facts;
  const list = make("dl", { class: "facts" });
  const add = (name, ...value) => list.append(make("dt", {}, name), make("dd", {}, ...value));
  const more = known.candidates > known.some.length ? ", …" : "";
  add("words left", `${known.candidates}: `, make("span", { class: "word" }, known.some.join(" ")), more);
  if (known.bits !== null) {
    const ignores = known.fits ? "" : ", ignores a clue";
    add("this guess", `${known.bits.toFixed(2)} bits${ignores}`);
  }
  if (known.best) {
    add("best guess", make("span", { class: "word" }, known.best), ` ${known.best_bits.toFixed(2)} bits`);
  }
  if (turn.reward && Object.keys(turn.reward).length) {
    const parts = Object.entries(turn.reward).map(([name, value]) => `${name} ${value.toFixed(2)}`);
    const total = Object.values(turn.reward).reduce((sum, value) => sum + value, 0);
    add("reward", `${total.toFixed(2)} = ${parts.join(", ")}`);
  }
  if (turn.text) add("its answer", make("pre", {}, turn.text));
  return list;
}

function wordTable(chances, guess) {
  const most = chances.words.length ? chances.words[0][1] : 1;
  const rows = chances.words.map(([word, chance]) =>
    make(
      "tr",
      { class: word === guess ? "chosen" : null },
      make("th", { scope: "row", class: "word" }, word),
      make("td", { class: "number" }, percent(chance)),
      make("td", {}, bar(chance / most)),
    ),
  );
  return make(
    "table",
    { class: "bars" },
    make("caption", {}, "Its likeliest words"),
    make(
      "thead",
      { class: "unseen" },
      make("tr", {}, ...["word", "probability", "bar"].map((name) => make("th", { scope: "col" }, name))),
    ),
    make("tbody", {}, ...rows),
  );
}

function letterTable(chances) {
  const head = [1, 2, 3, 4, 5].map((place) => make("th", { scope: "col" }, `place ${place}`));
  const depth = Math.max(0, ...chances.letters.map((letters) => letters.length));
  const rows = [];
  for (let i = 0; i < depth; i += 1) {
    const cells = chances.letters.map((letters) => {
      if (i >= letters.length) return make("td");
      const [letter, chance] = letters[i];
      return make("td", {}, make("b", {}, letter), ` ${whole(chance)}`, bar(chance));
    });
    rows.push(make("tr", {}, ...cells));
  }
  return make(
    "table",
    { class: "letters" },
    make("caption", {}, "Its likeliest letters"),
    make("thead", {}, make("tr", {}, ...head)),
    make("tbody", {}, ...rows),
  );
}

function rest(chances, guess) {
  let text = `Other answers than allowed words: ${percent(chances.other)}.`;
  if (chances.untried >= 0.0005) text += ` Not computed: up to ${percent(chances.untried)}.`;
  if (chances.guess !== null && !chances.words.some(([word]) => word === guess)) {
    text = `Its guess had ${percent(chances.guess)}. ${text}`;
  }
  if (!chances.exact) text += " The order of the words is not certain.";
  return make("p", { class: "muted" }, text);
}

/** Elements that show a turn {guess, note, facts, reward, text}. chances: undefined while unknown. */
export function drawThought(turn, chances) {
  const shown = [facts(turn)];
  if (turn.note) shown.unshift(make("p", {}, `No feedback: ${turn.note}.`));
  if (chances === undefined) return shown;
  if (chances === null) {
    shown.push(make("p", { class: "muted" }, "This player has no probabilities to show."));
  } else {
    shown.push(wordTable(chances, turn.guess), letterTable(chances), rest(chances, turn.guess));
  }
  return shown;
}
