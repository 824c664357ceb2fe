// Drives search.html in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_search.mjs SETTINGS.json, where the settings are: chromium, profile,
// url (of a server of the page), texts, out (a folder for screenshots).

import { join } from "node:path";
import { context, outside, settings } from "./opening.mjs";
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

const answered = (page, text) =>
  page.waitForFunction((wanted) => {
    const result = document.getElementById("result");
    return !result.hidden && result.dataset.text === wanted;
  }, text);

async function answers(page) {
  await page.goto(address());
  await page.waitForSelector("#text:enabled");
  const found = [];
  for (const text of settings.texts) {
    await page.fill("#text", text); // no Enter: it answers as one types
    await answered(page, text);
    found.push(await shown(page));
  }
  return found;
}

async function trouble(query, prepare = () => {}) {
  const page = await context.newPage();
  await prepare(page);
  await page.goto(address(query));
  await page.waitForSelector("#error:visible");
  const found = {
    message: await page.innerText("#error"),
    disabled: await page.isDisabled("#text"),
  };
  await page.close();
  return found;
}

try {
  const page = context.pages()[0] ?? (await context.newPage());
  const report = { answers: await answers(page), widths: {} };
  await page.fill("#text", settings.texts[0]);
  await answered(page, settings.texts[0]);
  for (const [name, width, height] of [
    ["desktop", 1280, 800],
    ["phone", 390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    await page.screenshot({ path: join(settings.out, `search_${name}.png`) });
    report.widths[name] = await page.evaluate(
      () => document.documentElement.scrollWidth,
    );
  }
  report.troubles = {
    absent: await trouble("?model=absent.tflite"),
    index: await trouble("?index=other"),
    page: await trouble("?model=search.html"),
    mediapipe: await trouble("", (page) =>
      page.route("**/text_bundle.mjs", (route) =>
        route.fulfill({ status: 404 }),
      ),
    ),
  };
  report.outside = outside;
  console.log(JSON.stringify(report));
} finally {
  await context.close();
}
