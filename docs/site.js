// What the theme of the docs as a website leaves out for people who use a keyboard or a screen
// reader. The theme adds these elements while the page is open.
const mend = () => {
  // A landmark for each button that copies code would hide the page's real ones.
  for (const bar of document.querySelectorAll("nav.md-code__nav:not([role])")) bar.setAttribute("role", "presentation");
  // An empty corner of a table heads nothing.
  for (const corner of document.querySelectorAll(".md-typeset th:empty")) corner.replaceWith(document.createElement("td"));
  // Only what has the focus scrolls by keyboard.
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap, .md-typeset pre > code")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
new MutationObserver(mend).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", mend);
mend();
