// Chromium for the drivers of pages, by the settings in the file that they are
// given: chromium, profile, url (the one server that a page may ask).

import { readFileSync } from "node:fs";
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
export const outside = []; // what a page asked others for
await context.route(
  (url) => url.protocol.startsWith("http") && url.origin !== settings.url,
  (route) => {
    outside.push(route.request().url());
    return route.abort();
  },
);
