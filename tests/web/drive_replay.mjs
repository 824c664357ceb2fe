// Opens replay.html in Chromium, and prints what it shows as JSON.
//
// node drive_replay.mjs SETTINGS.json, where the settings are, besides those of
// opening.mjs: names (of files there), chosen (the paths of a model and of its
// cases).

import { report, settings, widths } from "./opening.mjs";
const address = (query = "") => `${settings.url}/replay.html${query}`;

async function shown(page) {
  await page.waitForSelector("#result:visible, #error:visible");
  return {
    status: await page.innerText("#status"),
    error: await page.innerText("#error"),
    outputs: await page.locator("#answer li").allInnerTexts(),
  };
}

await report(async (page) => {
  const byName = {};
  for (const name of settings.names) {
    await page.goto(address(`?model=${name}`));
    byName[name] = await shown(page);
  }
  await page.goto(address());
  await page.setInputFiles("#model", settings.chosen[0]);
  await page.setInputFiles("#cases", settings.chosen[1]);
  const chosen = await shown(page);
  return { byName, chosen, widths: await widths(page, "replay_") };
});
