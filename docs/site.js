// The theme puts the copy button of each code block in a landmark; number them for screen readers. Blocks that
// scroll must be reachable by keyboard, too.
const label = () => {
  document.querySelectorAll(".md-code__nav").forEach((nav, at) => {
    const name = `Code block ${at + 1}`;
    if (nav.getAttribute("aria-label") !== name) nav.setAttribute("aria-label", name);
  });
  document.querySelectorAll("pre > code, .md-typeset__table, .md-typeset__scrollwrap").forEach((block) => {
    if (block.scrollWidth > block.clientWidth) block.tabIndex = 0;
  });
};
new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
window.addEventListener("resize", label);
label();
