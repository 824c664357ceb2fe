// Drives generate.html in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_generate.mjs SETTINGS.json, where the settings are, besides those of
// opening.mjs: texts, long (a text that is too long).

import {
  answered,
  answers,
  missing,
  report,
  settings,
  trouble,
  widths,
} from "./opening.mjs";
const address = (query = "") => `${settings.url}/generate.html${query}`;

const shown = (page) =>
  page.evaluate(() => {
    const text = (id) => document.getElementById(id).textContent;
    return {
      answer: text("answer"),
      status: text("status"),
      sure: text("sure"),
      unknown: text("unknown"),
      score: Number(document.getElementById("result").dataset.score),
    };
  });

/** What the page says of a text that is too long, and how it goes on. */
async function tooLong(page) {
  await page.fill("#text", settings.long);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#error:visible");
  const message = await page.innerText("#error");
  await page.fill("#text", settings.texts[0]);
  await answered(page, settings.texts[0]);
  return { message, after: await shown(page) };
}

await report(async (page) => ({
  answers: await answers(page, address(), shown),
  tooLong: await tooLong(page),
  widths: await widths(page, "generate_"),
  beams: await answers(page, address("?model=beams.tflite"), shown),
  troubles: {
    absent: await trouble(address("?model=absent.tflite")),
    json: await trouble(address("?vocabulary=index.html")),
    dynamic: await trouble(address("?model=dynamic.tflite")),
    corrupt: await trouble(address("?model=corrupt.tflite")),
    wasm: await trouble(address(), missing("**/*.wasm")),
  },
}));
