// Drives the page in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_page.mjs SETTINGS.json, where the settings are, besides those of
// opening.mjs: file (of index.html), texts, characters (texts to normalise),
// model (a good file).

import { pathToFileURL } from "node:url";
import {
  answered,
  context,
  missing,
  report,
  settings,
  trouble,
  widths,
} from "./opening.mjs";

const shown = (page) =>
  page.evaluate(() => {
    const text = (id) => document.getElementById(id).textContent;
    const canvas = document.getElementById("encoding");
    const { width, height } = canvas;
    const pixels = canvas.getContext("2d").getImageData(0, 0, width, height);
    return {
      status: text("status"),
      scores: Object.fromEntries(
        [...document.querySelectorAll("#answer li")].map((row) => [
          row.dataset.label,
          { raw: Number(row.dataset.score), text: row.innerText },
        ]),
      ),
      best: document.querySelector("#answer .best").dataset.label,
      tokens: [...document.querySelectorAll("#tokens li")].map(
        (item) => item.textContent,
      ),
      encoding: { width, height, pixels: [...pixels.data] },
      name: canvas.getAttribute("aria-label"),
    };
  });

const focused = (page) => page.evaluate(() => document.activeElement.id);

async function classifies(page) {
  await page.goto(settings.url);
  await page.waitForSelector("#text:enabled");
  const before = { focus: await focused(page), status: await page.innerText("#status") };
  const answers = [];
  for (const [index, text] of settings.texts.entries()) {
    await page.keyboard.press("Control+A");
    if (index === 0) await page.keyboard.type(text); // key by key, no Enter
    else {
      await page.keyboard.insertText(text);
      await page.keyboard.press("Enter");
    }
    await answered(page, text);
    answers.push(await shown(page));
  }
  return { before, answers };
}

const normalized = (page) =>
  page.evaluate((texts) => texts.map(normalize), settings.characters);

async function tabs(page) {
  const stops = [];
  for (let i = 0; i < 3; i++) {
    await page.keyboard.press("Tab");
    stops.push(
      await page.evaluate(() => ({
        id: document.activeElement.id,
        outline: getComputedStyle(document.activeElement).outlineStyle,
      })),
    );
  }
  // Back to the button, which answers too.
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Shift+Tab");
  await page.evaluate(() => {
    document.getElementById("result").hidden = true;
  });
  await page.keyboard.press("Space");
  await answered(page, settings.texts.at(-1));
  // An emptied text has no answer.
  await page.keyboard.press("Shift+Tab");
  await page.keyboard.press("Control+A");
  await page.keyboard.press("Delete");
  await page.waitForSelector("#result", { state: "hidden" });
  return { stops, emptied: await page.innerText("#status") };
}

const screenshots = (page) =>
  widths(page, "", async () => {
    await page.fill("#text", settings.texts[0]);
    await page.keyboard.press("Enter");
    await answered(page, settings.texts[0]);
    await page.waitForTimeout(200); // bars move for 120 ms
  });

/** How it ends that MediaPipe, once closed, sends its metrics. */
async function metrics(page) {
  const end = new Promise((resolve) => {
    const isOutside = (text) => text.includes("https://");
    page.on("console", (message) => {
      if (isOutside(message.text())) resolve(message.text());
    });
    page.on("request", (request) => {
      if (isOutside(request.url())) resolve(`sent to ${request.url()}`);
    });
  });
  await page.setInputFiles("#file", settings.model); // in place of the first
  return Promise.race([end, page.waitForTimeout(5000).then(() => "none")]);
}

/** What the page answers with a file that is chosen after trouble. */
async function chosen() {
  const page = await context.newPage();
  await page.goto(`${settings.url}/?model=absent.tflite`);
  await page.waitForSelector("#error:visible");
  await page.setInputFiles("#file", settings.model);
  await page.waitForSelector("#text:enabled");
  await page.fill("#text", settings.texts[0]);
  await answered(page, settings.texts[0]);
  return (await shown(page)).scores;
}

async function troubles() {
  const { url } = settings;
  return {
    absent: await trouble(`${url}/?model=absent.tflite`),
    corrupt: await trouble(`${url}/?model=corrupt.tflite`),
    page: await trouble(`${url}/?model=index.html`),
    plain: await trouble(`${url}/?model=plain.tflite`),
    mediapipe: await trouble(url, missing("**/text_bundle.mjs")),
    wasm: await trouble(url, missing("**/*.wasm")),
    file: await trouble(pathToFileURL(settings.file).href),
  };
}

await report(async (page) => ({
  ...(await classifies(page)),
  ...(await tabs(page)),
  normalized: await normalized(page),
  widths: await screenshots(page),
  metrics: await metrics(page),
  troubles: await troubles(),
  chosen: await chosen(),
}));
