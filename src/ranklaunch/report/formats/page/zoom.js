"use strict";
// Keeps the middle of the visible part in place when the zoom changes. Without this script, the page works otherwise.
for (const input of document.querySelectorAll(".zoom > input")) {
  const view = input.closest(".zoom").querySelector(".scroll");
  let seen = 0.5;
  view.addEventListener("scroll", () => { seen = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth; }, { passive: true });
  input.addEventListener("change", () => { const at = seen; view.scrollLeft = at * view.scrollWidth - view.clientWidth / 2; });
}
