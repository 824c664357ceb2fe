"use strict";

// Of the page's address: generate.html?model=other.tflite&vocabulary=other.json
const OPTIONS = new URLSearchParams(location.search);
const MODEL = OPTIONS.get("model") ?? "generator.tflite";
const VOCABULARY = OPTIONS.get("vocabulary") ?? "generator.json";
const LITERT = "./node_modules/@litertjs/core";
const PAUSE = 150; // milliseconds without a key before an answer

const byId = (id) => document.getElementById(id);

/** An error whose message says what to do. */
class Trouble extends Error {}

// ---------------------------------------------------------------- loading

let litert, bytes, model, tokenizers;

async function load() {
  if (location.protocol === "file:") {
    throw new Trouble(
      "Browsers load no model from file://. In the folder of this page run " +
        "“python -m http.server”, and open http://localhost:8000/generate.html",
    );
  }
  if (typeof WebAssembly !== "object") {
    throw new Trouble(
      "This browser has no WebAssembly, or it is turned off, and LiteRT " +
        "needs it.",
    );
  }
  byId("status").textContent = "Loading LiteRT…";
  const [content, config] = await Promise.all([
    fetched(MODEL),
    fetched(VOCABULARY),
  ]);
  tokenizers = readTokenizers(await config.text());
  bytes = new Uint8Array(await content.arrayBuffer());
  if (String.fromCharCode(...bytes.subarray(4, 8)) !== "TFL3") {
    throw new Trouble(`${MODEL} is not a LiteRT file.`);
  }
  try {
    litert = await import(`${LITERT}/dist/index.js`);
    await litert.loadLiteRt(`${LITERT}/wasm/`);
  } catch (cause) {
    throw new Trouble(
      "LiteRT is not here, or does not start. In the folder of this page run " +
        "“npm ci”, and serve node_modules/ beside it.",
      { cause },
    );
  }
  try {
    model = await compiled();
  } catch (cause) {
    throw new Trouble(`LiteRT cannot run ${MODEL}: is it whole?`, { cause });
  }
  const inputs = model.getInputDetails().map(({ name }) => name);
  const [ids] = model.getInputDetails();
  if (`${inputs}` !== "ids" || [...ids.shape].some((size) => size < 1)) {
    throw new Trouble(
      `${MODEL} does not take one text's ids, of a fixed length: export it ` +
        'with {"serving_default": (generator.from_ids, {"ids": (1, 64)})}.',
    );
  }
}

const compiled = () => litert.loadAndCompile(bytes, { accelerator: "wasm" });

async function fetched(name) {
  let answer;
  try {
    answer = await fetch(name);
  } catch (cause) {
    throw new Trouble(`The server does not answer for ${name}.`, { cause });
  }
  if (!answer.ok) {
    throw new Trouble(
      `There is no ${name} (${answer.status} ${answer.statusText}). Put it ` +
        "beside generate.html: README.md says how it is written.",
    );
  }
  return answer;
}

function readTokenizers(text) {
  let found;
  try {
    found = JSON.parse(text);
  } catch (cause) {
    throw new Trouble(`${VOCABULARY} is not JSON.`, { cause });
  }
  for (const side of ["source", "target"]) {
    if (!Array.isArray(found?.[side]?.vocabulary)) {
      throw new Trouble(
        `${VOCABULARY} has no ${side}.vocabulary: README.md says how it is ` +
          "written.",
      );
    }
  }
  return found;
}

function showError(error) {
  const [title, details] = ["strong", "code"].map((name) =>
    document.createElement(name),
  );
  const isOurs = error instanceof Trouble || error instanceof RangeError;
  title.textContent = isOurs ? error.message : "Something went wrong.";
  const cause = isOurs ? error.cause : error;
  details.textContent = String(cause?.message ?? cause);
  byId("error").replaceChildren(title, ...(cause ? [details] : []));
  byId("error").hidden = false;
  byId("status").textContent = "";
  byId("result").hidden = true;
}

// ----------------------------------------------------------------- answer

/** What the model makes of a text: its answer, and how sure it is. */
async function generate(text) {
  const used = (model ??= await compiled());
  const [details] = used.getInputDetails();
  const { row, unknown } = toIds(text, tokenizers.source, details.shape[1]);
  const input = new litert.Tensor(row, [...details.shape]);
  let found;
  try {
    found = await used.run({ ids: input });
    const width = found.ids.type.layout.dimensions.at(-1);
    // Of several sequences, the best stands first.
    const ids = found.ids.toTypedArray().slice(0, width);
    const [score] = found.score.toTypedArray();
    return { text: toText(ids, tokenizers.target), score, unknown };
  } catch (error) {
    // It may give wrong ids from now on: the next text has another.
    if (model === used) {
      model = undefined;
      used.delete();
    }
    throw error;
  } finally {
    input.delete();
    for (const tensor of Object.values(found ?? {})) tensor.delete();
  }
}

let last = 0; // the number of the latest answer that was asked for

async function answer() {
  const number = ++last;
  const text = byId("text").value;
  byId("error").hidden = true;
  if (!text.trim()) {
    byId("result").hidden = true;
    byId("status").textContent = "Ready: type a text.";
    return;
  }
  const start = performance.now();
  let found;
  try {
    found = await generate(text);
  } catch (error) {
    if (number === last) showError(error);
    return;
  }
  if (number !== last) return; // typed on meanwhile
  const time = performance.now() - start;
  const sure = `${(100 * Math.exp(found.score)).toFixed(1)} %`;
  byId("answer").textContent = found.text;
  // The answer is an <output>, which is read aloud by itself.
  byId("status").textContent = `Answered in ${time.toFixed(1)} ms.`;
  byId("sure").textContent = `Probability of this answer: ${sure}.`;
  byId("unknown").textContent = found.unknown.length
    ? `Not in the vocabulary: ${found.unknown.join(" ")}`
    : "";
  byId("result").dataset.score = found.score;
  byId("result").dataset.text = text;
  byId("result").hidden = false;
}

// ----------------------------------------------------------------- events

let timer;

function answerAfter(milliseconds) {
  clearTimeout(timer);
  timer = setTimeout(answer, milliseconds);
}

byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  answerAfter(0);
});
byId("text").addEventListener("input", () => answerAfter(PAUSE));

load().then(() => {
  for (const id of ["text", "generate"]) byId(id).disabled = false;
  answer();
  if (matchMedia("(pointer: fine)").matches) byId("text").focus();
}, showError);
