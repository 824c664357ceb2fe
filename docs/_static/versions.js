// Leads to another published version: the folders that versions.json names beside
// this one. Not shown where there is no such file.
"use strict";

for (const select of document.querySelectorAll("[data-versions]")) {
  // versions.json stands above the folder of this version.
  const here = new URL(select.dataset.versions, location.href);
  const above = new URL("../", here);
  fetch(new URL("versions.json", above))
    .then((answer) => answer.json())
    .then((versions) => {
      const current = select.value;
      select.replaceChildren(
        ...versions.map((name) => new Option(name, name, false, name === current)),
      );
      select.closest(".versions").hidden = false;
    });
  select.addEventListener("change", () => {
    location.href = new URL(`${select.value}/`, above);
  });
}
