// Drives the built site in Chromium, and prints what it shows as JSON.
//
// node drive_site.mjs SETTINGS.json, where the settings are: chromium, profile,
// url (of a server), version and other (folders of the site there), pages (their
// paths), widths, out (a folder for screenshots).

import { readFileSync } from "node:fs";
import { join } from "node:path";
import { chromium } from "playwright-core";

const settings = JSON.parse(readFileSync(process.argv[2], "utf8"));
const browser = await chromium.launch({
  executablePath: settings.chromium,
  args: ["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"],
});
const site = `${settings.url}/${settings.version}`;
const index = `${site}/README.html`;

/** A page of a size, and what goes wrong on it. */
async function open(width) {
  const context = await browser.newContext({
    viewport: { width, height: width < 600 ? 844 : 800 },
  });
  context.setDefaultTimeout(15_000);
  const wrong = [];
  await context.route(
    (url) => url.protocol.startsWith("http") && url.origin !== settings.url,
    (route) => {
      wrong.push(`asks for ${route.request().url()}`);
      return route.abort();
    },
  );
  const page = await context.newPage();
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type()))
      wrong.push(`${page.url()}: ${message.text()}`);
  });
  page.on("pageerror", (error) => wrong.push(`${page.url()}: ${error.message}`));
  return { page, wrong, close: () => context.close() };
}

const shoot = (page, name) =>
  page.screenshot({ path: join(settings.out, `${name}.png`) });

/** Each page: its weight, and what is wrong with it. */
async function visit(width) {
  const { page, wrong, close } = await open(width);
  const pages = {};
  for (const path of settings.pages) {
    await page.goto(`${site}/${path}`, { waitUntil: "load" });
    // Pictures that are far down load as one comes to them.
    await page.evaluate(async () => {
      for (const image of document.images) image.loading = "eager";
      await Promise.all([...document.images].map((image) => image.decode().catch(() => {})));
    });
    pages[path] = await page.evaluate(() => {
      const [own] = performance.getEntriesByType("navigation");
      const parts = performance.getEntriesByType("resource");
      const main = document.querySelector("article") ?? document.body;
      return {
        bytes: [own, ...parts].reduce((sum, part) => sum + part.encodedBodySize, 0),
        broken: [...document.images].filter((image) => !image.naturalWidth).map((image) => image.src),
        unnamed: [...document.images].filter((image) => !image.alt).map((image) => image.src),
        tooWide: document.documentElement.scrollWidth - innerWidth,
        // Commands and tables of which a part is out of sight.
        cut: [...main.querySelectorAll(":is(.highlight-default, .highlight-sh, .highlight-console) pre, .table-wrapper")]
          .filter((place) => place.scrollWidth > place.clientWidth + 1)
          .map((place) => place.innerText.slice(0, 60)),
        // Names on two lines, except those that are as long as a line.
        torn: [...main.querySelectorAll("code")]
          .filter((code) => /^[\w.]{1,40}$/.test(code.textContent) && code.getClientRects().length > 1)
          .map((code) => code.textContent),
        title: document.title,
        words: main.innerText.split(/\s+/).length,
      };
    });
  }
  await close();
  return { pages, wrong };
}

async function search(page, words) {
  await page.goto(index);
  await page.focus(".sidebar-search");
  await page.keyboard.type(words);
  await page.keyboard.press("Enter");
  await page.waitForSelector("#search-results li a");
  await page.waitForFunction(() => /\d|one|찾/.test(document.querySelector(".search-summary")?.textContent ?? ""));
  return page.$$eval("#search-results > ul > li > a, #search-results ul.search > li > a", (links) =>
    links.slice(0, 5).map((link) => ({ text: link.innerText, to: link.getAttribute("href") })),
  );
}

/** The published versions that a page offers, and where another one leads. */
async function versions(page) {
  await page.goto(index);
  const select = page.locator("[data-versions]:visible");
  await select.waitFor();
  const names = await select.locator("option").allTextContents();
  await select.selectOption(settings.other);
  await page.waitForURL(`**/${settings.other}/README.html`);
  return names;
}

/** What `action` changes of the sentence and of the picture at a place. */
async function turned(page, path, name, action) {
  await page.goto(`${site}/${path}`);
  const place = page.locator(`[data-picture=${name}]`);
  const state = () =>
    place.evaluate((element) => ({
      says: element.querySelector(".says")?.textContent ?? "",
      drawn: [...element.querySelectorAll("path, .bar")].map((line) => line.outerHTML).join(),
    }));
  const before = await state();
  await action(place);
  const after = await state();
  return { before: before.says, after: after.says, redrawn: before.drawn !== after.drawn };
}

async function use(width) {
  const { page, wrong, close } = await open(width);
  await page.goto(index);
  await shoot(page, `index-${width}`);
  const narrow = width < 600;
  const found = {};
  const sought = ["RotaryEmbedding", "SinePositionEncoding", "warm-up request fails"];
  for (const words of narrow ? [] : sought) found[words] = await search(page, words);
  const offered = narrow ? null : await versions(page);
  const slide = (place) => place.locator("input[type=range]").first().press("ArrowRight");
  const pictures = {
    sinusoid: await turned(page, "docs/positional_encodings.html", "sinusoid", slide),
    attention: await turned(page, "docs/positional_encodings.html", "attention", slide),
    extrapolation: await turned(page, "benchmarks/POSITIONS.html", "extrapolation", (place) =>
      place.getByLabel("kerple").press("Space")),
  };
  await shoot(page, `pictures-${width}`);
  await close();
  return { found, offered, pictures, wrong };
}

try {
  const report = {};
  for (const width of settings.widths)
    report[width] = { visited: await visit(width), used: await use(width) };
  process.stdout.write(JSON.stringify(report));
} finally {
  await browser.close();
}
