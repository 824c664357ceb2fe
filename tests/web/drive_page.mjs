// Drives the page in Chromium by keyboard, and prints what it shows as JSON.
//
// node drive_page.mjs SETTINGS.json, where the settings are: chromium, profile,
// url (of a server of the page), file (of index.html), texts, characters (texts
// to normalise), model (a good file), out (a folder for screenshots).

import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { context, settings } from "./opening.mjs";

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

const answered = (page, text) =>
  page.waitForFunction((wanted) => {
    const result = document.getElementById("result");
    return !result.hidden && result.dataset.text === wanted;
  }, text);

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

async function screenshots(page) {
  const widths = {};
  for (const [name, width, height] of [
    ["desktop", 1280, 800],
    ["phone", 390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    await page.fill("#text", settings.texts[0]);
    await page.keyboard.press("Enter");
    await answered(page, settings.texts[0]);
    await page.waitForTimeout(200); // bars move for 120 ms
    await page.screenshot({ path: join(settings.out, `${name}.png`) });
    widths[name] = await page.evaluate(
      () => document.documentElement.scrollWidth,
    );
  }
  return widths;
}

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

/** What the page says where `prepare` or its address breaks it. */
async function trouble(address, prepare = () => {}) {
  const page = await context.newPage();
  await prepare(page);
  await page.goto(address);
  await page.waitForSelector("#error:visible");
  const found = {
    message: await page.innerText("#error"),
    role: await page.getAttribute("#error", "role"),
    disabled: await page.isDisabled("#text"),
  };
  return [page, found];
}

async function troubles() {
  const { url } = settings;
  const missing = (glob) => (page) =>
    page.route(glob, (route) => route.fulfill({ status: 404 }));
  const cases = {
    corrupt: [`${url}/?model=corrupt.tflite`],
    page: [`${url}/?model=index.html`],
    plain: [`${url}/?model=plain.tflite`],
    mediapipe: [url, missing("**/text_bundle.mjs")],
    wasm: [url, missing("**/*.wasm")],
    garbled: [
      url,
      (page) =>
        page.route("**/*.wasm", (route) => route.fulfill({ body: "garbled" })),
    ],
    blocked: [
      url,
      (page) => page.addInitScript("delete globalThis.WebAssembly"),
    ],
    file: [pathToFileURL(settings.file).href],
  };
  const found = {};
  for (const [name, [address, prepare]] of Object.entries(cases)) {
    const [page, result] = await trouble(address, prepare);
    found[name] = result;
    await page.close();
  }
  const [page, absent] = await trouble(`${url}/?model=absent.tflite`);
  await page.screenshot({ path: join(settings.out, "trouble.png") });
  await page.setInputFiles("#file", settings.model);
  await page.waitForSelector("#text:enabled");
  await page.fill("#text", settings.texts[0]);
  await answered(page, settings.texts[0]);
  found.absent = { ...absent, chosen: (await shown(page)).scores };
  return found;
}

try {
  const page = context.pages()[0] ?? (await context.newPage());
  const report = { ...(await classifies(page)), ...(await tabs(page)) };
  report.normalized = await normalized(page);
  report.widths = await screenshots(page);
  report.metrics = await metrics(page);
  report.troubles = await troubles();
  console.log(JSON.stringify(report));
} finally {
  await context.close();
}
