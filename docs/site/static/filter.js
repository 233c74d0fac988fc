// A filter over the tables of the page of known errors: rows with all words of the field stay, and so do the headings above them.

// By the name of an entry: the words of a program's output that lead to it. words: the section that lists entries by their words.
function wordsOfEntries(words) {
  const found = new Map();
  let code = "";
  for (const each of words?.querySelectorAll("code, a[href^='#']") ?? []) {
    if (each.tagName === "CODE" && !each.closest("a")) code = each.textContent;
    else if (each.tagName === "A") found.set(each.textContent, `${found.get(each.textContent) ?? ""} ${code}`);
  }
  return found;
}

addEventListener("DOMContentLoaded", () => {
  const article = document.querySelector("#known-errors");
  if (!article || !location.pathname.endsWith("/known-errors.html")) return;
  const tables = [...article.querySelectorAll("table")].filter(table => table.querySelector("th")?.textContent === "name");
  const patterns = wordsOfEntries(article.querySelector("#by-their-words"));
  const label = document.createElement("label");
  const field = document.createElement("input");
  const count = document.createElement("output");
  label.className = "filter";
  field.type = "search";
  field.placeholder = "507054, EI0002, CUDA out of memory";
  label.append("Filter by code or words ", field, count);
  article.querySelector("h1").after(label);

  function show() {
    const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const part of article.querySelectorAll("section")) part.hidden = words.length > 0;
    for (const table of tables) {
      for (const row of table.tBodies[0].rows) {
        const text = (row.textContent + (patterns.get(row.cells[0].textContent.trim()) ?? "")).toLowerCase();
        row.hidden = !words.every(word => text.includes(word));
        if (row.hidden) continue;
        shown += 1;
        for (let part = row.closest("section"); part && part !== article; part = part.parentElement.closest("section")) part.hidden = false;
      }
    }
    count.value = words.length ? ` ${shown} of ${tables.reduce((sum, table) => sum + table.tBodies[0].rows.length, 0)}` : "";
    for (const part of article.children) if (part.tagName === "P" || part.classList.contains("highlight-console")) part.hidden = words.length > 0;
  }

  field.addEventListener("input", show);
  field.value = new URLSearchParams(location.search).get("q") ?? "";
  show();
});
