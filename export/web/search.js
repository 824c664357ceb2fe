"use strict";

// Of the page's address: search.html?model=other.tflite&index=other, which is
// other.json and other.bin.
const OPTIONS = new URLSearchParams(location.search);
const MODEL = OPTIONS.get("model") ?? "embedder.tflite";
const INDEX = OPTIONS.get("index") ?? "index";
const MEDIAPIPE = "./node_modules/@mediapipe/tasks-text";
const PAUSE = 150; // milliseconds without a key before an answer
const BEST = 10;

const byId = (id) => document.getElementById(id);

/** An error whose message says what to do. */
class Trouble extends Error {}

// ---------------------------------------------------------------- loading

let embedder, makeEmbedder, texts, vectors, fold;

async function load() {
  if (location.protocol === "file:") {
    throw new Trouble(
      "Browsers load no model from file://. In the folder of this page run " +
        "“python -m http.server”, and open http://localhost:8000/search.html",
    );
  }
  byId("status").textContent = "Loading the model and the index…";
  const [model, described, numbers] = await Promise.all(
    [MODEL, `${INDEX}.json`, `${INDEX}.bin`].map(fetched),
  );
  const index = JSON.parse(new TextDecoder().decode(described));
  fold = normalizerOf(index);
  texts = index.texts;
  vectors = new Float32Array(numbers); // one row after the other
  let mediapipe;
  try {
    mediapipe = await import(`${MEDIAPIPE}/text_bundle.mjs`);
    const wasm = await mediapipe.FilesetResolver.forTextTasks(
      `${MEDIAPIPE}/wasm`,
    );
    makeEmbedder = () =>
      mediapipe.TextEmbedder.createFromOptions(wasm, {
        baseOptions: { modelAssetBuffer: new Uint8Array(model) },
      });
    embedder = await makeEmbedder();
  } catch (cause) {
    throw new Trouble(
      mediapipe
        ? `MediaPipe cannot run ${MODEL}: was it exported with ` +
          'task="text_embedder"?'
        : "MediaPipe is not here. In the folder of this page run “npm ci”, " +
          "and serve node_modules/ beside it.",
      { cause },
    );
  }
  const width = embed("").length;
  if (vectors.length !== texts.length * width) {
    throw new Trouble(
      `${INDEX}.bin must hold ${texts.length} rows of ${width} numbers, and ` +
        `holds ${vectors.length} numbers: are both of one model?`,
    );
  }
}

async function fetched(name) {
  const answer = await fetch(name);
  if (!answer.ok) {
    throw new Trouble(
      `There is no ${name} (${answer.status} ${answer.statusText}). Put it ` +
        "beside search.html: README.md says how it is written.",
    );
  }
  return answer.arrayBuffer();
}

function showError(error) {
  const [title, details] = ["strong", "code"].map((name) =>
    document.createElement(name),
  );
  const isOurs = error instanceof Trouble;
  title.textContent = isOurs ? error.message : "Something went wrong.";
  const cause = isOurs ? error.cause : error;
  // MediaPipe's messages end in a list of its own source files.
  details.textContent = String(cause?.message ?? cause).split("===")[0];
  byId("error").replaceChildren(title, ...(cause ? [details] : []));
  byId("error").hidden = false;
  byId("status").textContent = "";
  byId("result").hidden = true;
}

// ----------------------------------------------------------------- answer

/** The vector of a text, of length 1 unless it is 0. */
function embed(text) {
  const [{ floatEmbedding }] = embedder.embed(fold(text)).embeddings;
  const length = Math.hypot(...floatEmbedding) || 1;
  return floatEmbedding.map((value) => value / length);
}

/** The texts most alike, the first first, each with the cosine. */
function search(text) {
  const wanted = embed(text);
  const found = texts.map(([name, summary], i) => {
    let score = 0;
    for (let j = 0, k = i * wanted.length; j < wanted.length; j++, k++) {
      score += wanted[j] * vectors[k];
    }
    return { name, summary, score };
  });
  return found.sort((one, other) => other.score - one.score).slice(0, BEST);
}

async function answer() {
  const text = byId("text").value;
  byId("error").hidden = true;
  if (!text.trim()) {
    byId("result").hidden = true;
    byId("status").textContent = `Ready: ${texts.length} texts.`;
    return;
  }
  const start = performance.now();
  let found;
  try {
    embedder ??= await makeEmbedder();
    found = search(text);
  } catch (cause) {
    // It may give wrong vectors from now on: the next text has another.
    embedder?.close();
    embedder = undefined;
    showError(new Trouble("MediaPipe cannot read this text.", { cause }));
    return;
  }
  const time = performance.now() - start;
  byId("answer").replaceChildren(...found.map(resultRow));
  byId("status").textContent =
    `${texts.length} texts, answered in ${time.toFixed(1)} ms.`;
  byId("result").hidden = false;
  byId("result").dataset.text = text;
}

function resultRow({ name, summary, score }) {
  const [row, title, number, words] = ["li", "strong", "span", "p"].map(
    (tag) => document.createElement(tag),
  );
  row.dataset.name = name;
  row.dataset.score = score;
  title.textContent = name;
  number.className = "score";
  number.textContent = score.toFixed(3);
  words.className = "note";
  words.textContent = summary;
  row.append(title, number, words);
  return row;
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
  for (const id of ["text", "search"]) byId(id).disabled = false;
  answer();
  if (matchMedia("(pointer: fine)").matches) byId("text").focus();
}, showError);
