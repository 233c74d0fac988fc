// Sphinx drops words of digits from a search. A code alone is therefore looked up in the tables: exit codes, or known errors.

const HIGHEST_EXIT_CODE = 255;

addEventListener("DOMContentLoaded", () => {
  if (!location.pathname.endsWith("/search.html")) return;
  const query = (new URLSearchParams(location.search).get("q") ?? "").trim();
  if (!/^[0-9]+$/.test(query)) return;
  const page = Number(query) <= HIGHEST_EXIT_CODE ? "docs/exit-codes.html" : `docs/known-errors.html?q=${query}`;
  location.replace(new URL(page, location.href));
});
