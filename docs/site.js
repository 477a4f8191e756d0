// The theme puts the copy button of each code block in a landmark; number them for screen readers.
const label = () =>
  document.querySelectorAll(".md-code__nav").forEach((nav, at) => {
    const name = `Code block ${at + 1}`;
    if (nav.getAttribute("aria-label") !== name) nav.setAttribute("aria-label", name);
  });
new MutationObserver(label).observe(document.body, { childList: true, subtree: true });
