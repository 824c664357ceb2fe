// Chromium for the drivers of pages, by the settings in the file that they are
// given: chromium, profile, url (the one server that a page may ask), out (a
// folder for screenshots). And what the drivers of several pages do.

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

export const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
export const context = await chromium.launchPersistentContext(
  settings.profile,
  {
    executablePath: settings.chromium,
    viewport: { width: 1280, height: 800 },
    args: [
      "--headless",
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  },
);
context.setDefaultTimeout(60_000);
const outside = []; // what a page asked others for
await context.route(
  (url) => url.protocol.startsWith("http") && url.origin !== settings.url,
  (route) => {
    outside.push(route.request().url());
    return route.abort();
  },
);

/** Prints what `drive` reports of a page. */
export async function report(drive) {
  try {
    const page = context.pages()[0] ?? (await context.newPage());
    const found = await drive(page);
    console.log(JSON.stringify({ ...found, outside }));
  } finally {
    await context.close();
  }
}

export const answered = (page, text) =>
  page.waitForFunction((wanted) => {
    const result = document.getElementById("result");
    return !result.hidden && result.dataset.text === wanted;
  }, text);

/** What a page shows of each text, without Enter: it answers as one types. */
export async function answers(page, address, shown) {
  await page.goto(address);
  await page.waitForSelector("#text:enabled");
  const found = [];
  for (const text of settings.texts) {
    await page.fill("#text", text);
    await answered(page, text);
    found.push(await shown(page));
  }
  return found;
}

/** The width of a page on two screens, and a picture of each. */
export async function widths(page, name, prepare = () => {}) {
  const found = {};
  for (const [screen, width, height] of [
    ["desktop", 1280, 800],
    ["phone", 390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    await prepare();
    await page.screenshot({ path: join(settings.out, `${name}${screen}.png`) });
    found[screen] = await page.evaluate(
      () => document.documentElement.scrollWidth,
    );
  }
  return found;
}

/** What a page says where `prepare` or its address breaks it. */
export async function trouble(address, prepare = () => {}) {
  const page = await context.newPage();
  await prepare(page);
  await page.goto(address);
  await page.waitForSelector("#error:visible");
  const found = {
    message: await page.innerText("#error"),
    role: await page.getAttribute("#error", "role"),
    disabled: await page.isDisabled("#text"),
  };
  await page.close();
  return found;
}

/** For `trouble`: files that are not there. */
export const missing = (glob) => (page) =>
  page.route(glob, (route) => route.fulfill({ status: 404 }));
