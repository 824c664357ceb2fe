// Drives search.html in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_search.mjs SETTINGS.json, where the settings are, besides those of
// opening.mjs: texts.

import {
  answered,
  answers,
  missing,
  report,
  settings,
  trouble,
  widths,
} from "./opening.mjs";
const address = (query = "") => `${settings.url}/search.html${query}`;

const shown = (page) =>
  page.evaluate(() => ({
    status: document.getElementById("status").textContent,
    found: [...document.querySelectorAll("#answer li")].map((row) => ({
      name: row.dataset.name,
      score: Number(row.dataset.score),
      text: row.innerText,
    })),
  }));

await report(async (page) => {
  const found = await answers(page, address(), shown);
  await page.fill("#text", settings.texts[0]);
  await answered(page, settings.texts[0]);
  return {
    answers: found,
    widths: await widths(page, "search_"),
    troubles: {
      absent: await trouble(address("?model=absent.tflite")),
      index: await trouble(address("?index=other")),
      page: await trouble(address("?model=search.html")),
      mediapipe: await trouble(address(), missing("**/text_bundle.mjs")),
    },
  };
});
