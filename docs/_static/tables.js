// Lets calls and paths in tables break, never a name. Shows each row of a table that
// is wider than its place as a list, so that nothing of it is out of sight.
"use strict";

const tables = document.querySelectorAll("article .table-wrapper > table");
for (const table of tables) {
  const heads = [...table.querySelectorAll("thead th")].map((head) => head.innerText.trim());
  for (const row of table.tBodies[0]?.rows ?? [])
    [...row.cells].forEach((cell, i) => (cell.dataset.head = heads[i] ?? ""));
}

for (const name of document.querySelectorAll("article td:not(:first-child) code .pre"))
  name.innerHTML = name.innerHTML.replace(/[(\/](?=\w)/g, "$&<wbr>");

function fit() {
  for (const table of tables) {
    table.classList.remove("stacked");
    const place = table.parentElement;
    table.classList.toggle("stacked", place.scrollWidth > place.clientWidth);
  }
}

fit();
addEventListener("resize", fit);
document.fonts.ready.then(fit);
