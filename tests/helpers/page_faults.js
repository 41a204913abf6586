// What a reader would see wrong in the layout of a page, as a list of sentences: anything beyond
// the right edge, text that is cut, text over other text, code in a table that breaks within a word,
// and small or pale labels in pictures.
() => {
  const faults = [];
  const PIXEL = 1; // rounding
  const SMALLEST = 10; // pixels of a label
  const CONTRAST = 4.5; // WCAG 2, level AA, for text of this size

  const named = (element, text) =>
    `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${text}`;
  // Text for screen readers alone is clipped away or in a box of one pixel.
  const unseen = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const style = getComputedStyle(one);
      if (style.clipPath === "inset(50%)" || (style.position === "absolute" && one.offsetWidth === 1)) return true;
    }
    return !element.checkVisibility({ opacityProperty: true, visibilityProperty: true });
  };

  // The part of a rectangle that its ancestors let through. cut: whether one of them hides the rest
  // although nobody can scroll there.
  const through = (rect, element) => {
    let { left, top, right, bottom } = rect;
    let cut = false;
    for (let one = element; one && one !== document.body; one = one.parentElement) {
      const style = getComputedStyle(one);
      const [across, down] = [style.overflowX, style.overflowY];
      if ((across === "visible" && down === "visible") || (style.display === "inline" && one.tagName !== "svg")) continue;
      const box = one.getBoundingClientRect();
      if (across !== "visible") {
        if (/hidden|clip/.test(across)) cut ||= right > box.right + PIXEL || left < box.left - PIXEL;
        [left, right] = [Math.max(left, box.left), Math.min(right, box.right)];
      }
      if (down !== "visible") {
        if (/hidden|clip/.test(down)) cut ||= bottom > box.bottom + 3 || top < box.top - 3;
        [top, bottom] = [Math.max(top, box.top), Math.min(bottom, box.bottom)];
      }
    }
    return { left, top, right, bottom, cut };
  };

  // Every line of visible text, a rectangle each.
  const pieces = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.data.trim();
    if (!text || element.closest("script, style, title, desc, noscript, select") || unseen(element)) continue;
    const range = document.createRange();
    range.selectNodeContents(walker.currentNode);
    for (const word of element.closest("td code, th code") ? walker.currentNode.data.matchAll(/[^\s/-]+/g) : []) {
      const letters = document.createRange();
      letters.setStart(walker.currentNode, word.index);
      letters.setEnd(walker.currentNode, word.index + word[0].length);
      const lines = new Set([...letters.getClientRects()].map((rect) => Math.round(rect.top)));
      if (lines.size > 1) faults.push(`broken within a word: ${named(element, word[0])}`);
    }
    for (const rect of range.getClientRects()) {
      const seen = through(rect, element);
      if (seen.cut) faults.push(`cut: ${named(element, text.slice(0, 60))}`);
      if (rect.width < 1 || seen.right - seen.left < 1 || seen.bottom - seen.top < 1) continue;
      const box = element.closest("button, .tile")?.getBoundingClientRect();
      if (box && (rect.left < box.left - PIXEL || rect.right > box.right + PIXEL)) {
        faults.push(`wider than its button or tile: ${named(element, text.slice(0, 60))}`);
      }
      pieces.push({ ...seen, element, text: text.slice(0, 40) });
    }
  }

  // Lines may touch, because a font's box is higher than its letters.
  pieces.sort((one, other) => one.top - other.top);
  pieces.forEach((one, i) => {
    for (let j = i + 1; j < pieces.length && pieces[j].top < one.bottom; j += 1) {
      const other = pieces[j];
      const across = Math.min(one.right, other.right) - Math.max(one.left, other.left);
      const down = Math.min(one.bottom, other.bottom) - other.top;
      const lower = Math.min(one.bottom - one.top, other.bottom - other.top);
      if (across > 2 && down > 0.3 * lower) {
        faults.push(`overlap: ${named(one.element, one.text)} and ${named(other.element, other.text)}`);
      }
    }
  });

  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg") || unseen(element)) continue;
    const seen = through(element.getBoundingClientRect(), element.parentElement);
    if (seen.right > innerWidth + PIXEL && seen.bottom > seen.top) {
      faults.push(`beyond the right edge: ${named(element, element.textContent.trim().slice(0, 60))}`);
    }
  }
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");

  // axe does not look into pictures.
  const light = (colour) => {
    const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => {
      const share = Number(part) / 255;
      return share <= 0.04045 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  };
  const behind = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const colour = getComputedStyle(one).backgroundColor;
      if (!/, 0\)$/.test(colour)) return colour;
    }
    return "rgb(255, 255, 255)";
  };
  for (const label of document.querySelectorAll("svg text")) {
    const size = parseFloat(getComputedStyle(label).fontSize) * label.getScreenCTM().a;
    const upright = Math.abs(label.getScreenCTM().b) < 0.01;
    if (upright && size > 0 && size < SMALLEST) {
      faults.push(`small: ${size.toFixed(1)} pixels ${named(label, label.textContent)}`);
    }
    const fill = getComputedStyle(label).fill;
    if (!fill.startsWith("rgb")) continue;
    const [low, high] = [light(fill), light(behind(label.closest("svg")))].sort((a, b) => a - b);
    const contrast = (high + 0.05) / (low + 0.05);
    if (contrast < CONTRAST) faults.push(`pale: ${contrast.toFixed(1)} ${named(label, label.textContent)}`);
  }
  return [...new Set(faults)];
}
