"use strict";
{
  const source = document.getElementById("games-data");
  const form = document.getElementById("games-filter");
  if (source && form) {
    const views = JSON.parse(source.textContent);
    const list = document.getElementById("games-list");
    const count = document.getElementById("games-count");
    const more = document.getElementById("games-more");
    const PAGE = 24;
    const NAMES = ["in place", "elsewhere", "absent"];
    let shown = PAGE;

    const make = (tag, name, text) => {
      const element = document.createElement(tag);
      if (name) element.className = name;
      if (text) element.textContent = text;
      return element;
    };

    const row = ([letters = "", marks = "", note = "", text = ""]) => {
      const parts = document.createDocumentFragment();
      const line = make("div", "row");
      const told = [];
      for (let i = 0; i < 5; i += 1) {
        const letter = (letters[i] || "").toUpperCase();
        const tile = make("span", marks ? `tile mark${marks[i]}` : "tile", letter);
        if (marks) told.push(`${letter} ${NAMES[marks[i]]}`);
        line.append(tile);
      }
      line.setAttribute("role", "img");
      line.setAttribute("aria-label", told.join(", ") || letters.toUpperCase() || "no guess");
      parts.append(line);
      if (note) parts.append(make("p", "rejected", text ? `${note}: ${text}` : note));
      return parts;
    };

    const board = (game, player) => {
      const box = make("div", "board");
      const end = game ? (game[0] ? `won in ${game[1].length}` : "lost") : "not played";
      box.append(make("p", "", `${player}: ${end}`));
      for (const turn of game ? game[1] : []) box.append(row(turn));
      return box;
    };

    const bars = (games) => (player, i) => {
      const box = make("div", "counts");
      box.append(make("p", "", `${player}: games by number of guesses`));
      const ends = games.map((game) => game[i + 1]).filter(Boolean);
      const turns = Math.max(...games.flatMap(([, ...played]) => played.map((game) => game ? game[1].length : 0)));
      const labels = [...Array(turns).keys()].map((n) => String(n + 1)).concat("lost");
      const counts = labels.map((label) => ends.filter(
        ([solved, rows]) => label === (solved ? String(rows.length) : "lost")).length);
      labels.forEach((label, n) => {
        const line = make("div");
        const bar = make("span", "", String(counts[n]));
        bar.style.width = `${100 * counts[n] / Math.max(...counts)}%`;
        line.append(make("span", "", label), bar);
        box.append(line);
      });
      return box;
    };

    const won = (game) => Boolean(game && game[0]);
    const tests = {
      all: () => true,
      won: (played) => won(played[played.length - 1]),
      lost: (played) => !won(played[played.length - 1]),
      gained: (played) => !won(played[0]) && won(played[played.length - 1]),
      dropped: (played) => won(played[0]) && !won(played[played.length - 1]),
    };

    const draw = () => {
      const { players, games } = views[form.elements["view"].value];
      document.getElementById("games-bars").replaceChildren(...players.map(bars(games)));
      const wanted = form.elements["result"].value;
      const secret = form.elements["secret"].value.trim().toLowerCase();
      const guess = form.elements["guess"].value.trim().toLowerCase();
      const fits = games.filter(([name, ...played]) =>
        tests[wanted](played) && name.toLowerCase().includes(secret) &&
        (!guess || played.some((game) => game && game[1].some(([word]) => word === guess))));
      list.replaceChildren(...fits.slice(0, shown).map(([name, ...played]) => {
        const item = make("li");
        item.append(make("h3", "", name.toUpperCase()));
        const side = make("div", "side");
        side.append(...played.map((game, i) => board(game, players[i])));
        item.append(side);
        return item;
      }));
      count.textContent = `${fits.length} of ${games.length} secrets` +
        (fits.length > shown ? `, the first ${shown} are shown` : "");
      more.hidden = fits.length <= shown;
    };

    form.addEventListener("input", () => { shown = PAGE; draw(); });
    form.addEventListener("submit", (event) => event.preventDefault());
    more.addEventListener("click", () => { shown += PAGE; draw(); });
    document.getElementById("games-tool").hidden = false;
    draw();
  }
}
