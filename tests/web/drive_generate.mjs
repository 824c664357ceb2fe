// Drives generate.html in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_generate.mjs SETTINGS.json, where the settings are: chromium,
// profile, url (of a server of the page), texts, long (a text that is too long),
// out (a folder for screenshots).

import { join } from "node:path";
import { context, outside, settings } from "./opening.mjs";
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

const answered = (page, text) =>
  page.waitForFunction((wanted) => {
    const result = document.getElementById("result");
    return !result.hidden && result.dataset.text === wanted;
  }, text);

async function answers(page, query) {
  await page.goto(address(query));
  await page.waitForSelector("#text:enabled");
  const found = [];
  for (const text of settings.texts) {
    await page.fill("#text", text); // no Enter: it answers as one types
    await answered(page, text);
    found.push(await shown(page));
  }
  return found;
}

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

async function troubles() {
  const missing = (glob) => (page) =>
    page.route(glob, (route) => route.fulfill({ status: 404 }));
  return {
    absent: await trouble("?model=absent.tflite"),
    vocabulary: await trouble("?vocabulary=absent.json"),
    json: await trouble("?vocabulary=index.html"),
    page: await trouble("?model=index.html"),
    dynamic: await trouble("?model=dynamic.tflite"),
    corrupt: await trouble("?model=corrupt.tflite"),
    litert: await trouble("", missing("**/@litertjs/core/dist/index.js")),
    wasm: await trouble("", missing("**/*.wasm")),
  };
}

try {
  const page = context.pages()[0] ?? (await context.newPage());
  const report = { answers: await answers(page, "") };
  report.tooLong = await tooLong(page);
  report.widths = {};
  for (const [name, width, height] of [
    ["desktop", 1280, 800],
    ["phone", 390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    await page.screenshot({ path: join(settings.out, `generate_${name}.png`) });
    report.widths[name] = await page.evaluate(
      () => document.documentElement.scrollWidth,
    );
  }
  report.beams = await answers(page, "?model=beams.tflite");
  report.troubles = await troubles();
  report.outside = outside;
  console.log(JSON.stringify(report));
} finally {
  await context.close();
}
