// Opens replay.html in Chromium, and prints what it shows as JSON.
//
// node drive_replay.mjs SETTINGS.json, where the settings are: chromium, profile,
// url (of a server of the page), names (of files there), chosen (the paths of a
// model and of its cases), out (a folder for screenshots).

import { join } from "node:path";
import { context, outside, settings } from "./opening.mjs";
const address = (query = "") => `${settings.url}/replay.html${query}`;

async function shown(page) {
  await page.waitForSelector("#result:visible, #error:visible");
  return {
    status: await page.innerText("#status"),
    error: await page.innerText("#error"),
    outputs: await page.locator("#answer li").allInnerTexts(),
  };
}

try {
  const page = context.pages()[0] ?? (await context.newPage());
  const report = { byName: {}, widths: {} };
  for (const name of settings.names) {
    await page.goto(address(`?model=${name}`));
    report.byName[name] = await shown(page);
  }
  await page.goto(address());
  await page.setInputFiles("#model", settings.chosen[0]);
  await page.setInputFiles("#cases", settings.chosen[1]);
  report.chosen = await shown(page);
  for (const [name, width, height] of [
    ["desktop", 1280, 800],
    ["phone", 390, 844],
  ]) {
    await page.setViewportSize({ width, height });
    await page.screenshot({ path: join(settings.out, `replay_${name}.png`) });
    report.widths[name] = await page.evaluate(
      () => document.documentElement.scrollWidth,
    );
  }
  report.outside = outside;
  console.log(JSON.stringify(report));
} finally {
  await context.close();
}
