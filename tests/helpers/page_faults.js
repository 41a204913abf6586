// What a reader would see wrong in the layout of a page, as a list of sentences: anything beyond the
// right edge, and text that is wider than its button or tile. axe finds no fault in either.
() => {
  const faults = [];
  const PIXEL = 1; // rounding
  const named = (element) =>
    `<${element.tagName.toLowerCase()} class="${element.getAttribute("class") ?? ""}"> ${element.textContent.trim().slice(0, 60)}`;
  const scrolls = (element) => {
    for (let one = element; one !== document.body; one = one.parentElement) {
      if (/auto|scroll/.test(getComputedStyle(one).overflowX)) return true;
    }
    return false;
  };
  if (document.documentElement.scrollWidth > innerWidth) faults.push("the page scrolls sideways");
  for (const element of document.querySelectorAll("body *")) {
    if (element.closest("svg, .unseen") || !element.checkVisibility()) continue;
    const box = element.getBoundingClientRect();
    if (box.right > innerWidth + PIXEL && !scrolls(element)) {
      faults.push(`beyond the right edge: ${named(element)}`);
    }
    if (element.matches("button, .tile") && element.scrollWidth > element.clientWidth + PIXEL) {
      faults.push(`its text is wider: ${named(element)}`);
    }
  }
  return faults;
}
