"use strict";
// The middle of what is seen stays there when the zoom changes. Without this, all else works.
for (const input of document.querySelectorAll(".zoom > input")) {
  const view = input.closest(".zoom").querySelector(".scroll");
  let seen = 0.5;
  view.addEventListener("scroll", () => { seen = (view.scrollLeft + view.clientWidth / 2) / view.scrollWidth; }, { passive: true });
  input.addEventListener("change", () => { const at = seen; view.scrollLeft = at * view.scrollWidth - view.clientWidth / 2; });
}
