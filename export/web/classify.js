"use strict";

// Of the page's address: index.html?model=other.tflite&width=128
const OPTIONS = new URLSearchParams(location.search);
const MODEL = OPTIONS.get("model") ?? "model.tflite";
const WIDTH = 2 * Math.ceil((Number(OPTIONS.get("width")) || 64) / 2);
const MEDIAPIPE = "./node_modules/@mediapipe/tasks-text";
const PAUSE = 150; // milliseconds without a key before an answer
const MOST_LABELS = 10;

const byId = (id) => document.getElementById(id);

/** An error whose message says what to do. */
class Trouble extends Error {}

// ---------------------------------------------------------------- loading

let mediapipe, wasm, classifier, makeClassifier, vocabulary;

async function loadMediaPipe() {
  byId("status").textContent = "Loading MediaPipe…";
  if (location.protocol === "file:") {
    throw new Trouble(
      "Browsers load no model from file://. In the folder of this page run " +
        "“python -m http.server”, and open http://localhost:8000/",
    );
  }
  if (typeof WebAssembly !== "object") {
    throw new Trouble(
      "This browser has no WebAssembly, or it is turned off (as in some " +
        "private or lockdown modes), and MediaPipe needs it.",
    );
  }
  try {
    mediapipe = await import(`${MEDIAPIPE}/text_bundle.mjs`);
  } catch (cause) {
    throw new Trouble(
      "MediaPipe is not here. In the folder of this page run “npm ci”, and " +
        "serve node_modules/ beside it.",
      { cause },
    );
  }
  wasm = await mediapipe.FilesetResolver.forTextTasks(`${MEDIAPIPE}/wasm`);
  // Asked first, because MediaPipe would only say that it failed.
  for (const path of [wasm.wasmLoaderPath, wasm.wasmBinaryPath]) {
    const answer = await fetch(path, { method: "HEAD" });
    if (answer.status === 404) {
      throw new Trouble(
        `MediaPipe's WebAssembly is not here: ${path} (404). ` +
          "In the folder of this page run “npm ci”.",
      );
    }
  }
}

async function fetchModel() {
  byId("status").textContent = `Loading ${MODEL}…`;
  let answer;
  try {
    answer = await fetch(MODEL);
  } catch (cause) {
    throw new Trouble(`The server does not answer for ${MODEL}.`, { cause });
  }
  if (!answer.ok) {
    throw new Trouble(
      `There is no ${MODEL} (${answer.status} ${answer.statusText}). Put the ` +
        "exported file beside index.html under this name, or choose it below.",
    );
  }
  return new Uint8Array(await answer.arrayBuffer());
}

async function useModel(bytes, name) {
  if (String.fromCharCode(...bytes.subarray(4, 8)) !== "TFL3") {
    throw new Trouble(`${name} is not a LiteRT file.`);
  }
  vocabulary = readVocabulary(bytes, name);
  classifier?.close();
  classifier = undefined;
  makeClassifier = () =>
    mediapipe.TextClassifier.createFromOptions(wasm, {
      baseOptions: { modelAssetBuffer: bytes },
      maxResults: MOST_LABELS,
    });
  try {
    const made = await makeClassifier();
    made.classify(""); // some faults show only here
    classifier = made;
  } catch (cause) {
    const message = reason(cause).includes("WebAssembly")
      ? "MediaPipe's WebAssembly does not start in this browser."
      : `MediaPipe cannot run ${name}: is it whole?`;
    throw new Trouble(message, { cause });
  }
  for (const id of ["text", "classify"]) byId(id).disabled = false;
  answer();
}

/** Runs a step of loading, and shows what is wrong where it fails. */
async function loading(step) {
  byId("error").hidden = true;
  try {
    await step();
  } catch (error) {
    showError(error);
  }
}

/** What an error says, without MediaPipe's list of its own source files. */
const reason = (error) => String(error?.message ?? error).split("===")[0];

function showError(error) {
  const [title, details] = ["strong", "code"].map((name) =>
    document.createElement(name),
  );
  title.textContent =
    error instanceof Trouble ? error.message : "Something went wrong.";
  const cause = error instanceof Trouble ? error.cause : error;
  details.textContent = reason(cause);
  byId("error").replaceChildren(title, ...(cause ? [details] : []));
  byId("error").hidden = false;
  byId("status").textContent = "";
  byId("result").hidden = true;
  for (const id of ["text", "classify"]) byId(id).disabled = !classifier;
}

// ----------------------------------------------------------------- tokens

/** The tokens in vocab.txt, which lies in a zip archive behind the graph. */
function readVocabulary(bytes, name) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const text = new TextDecoder();
  let end = bytes.length - 22;
  while (end >= 0 && view.getUint32(end, true) !== 0x06054b50) end--;
  let entry = end < 0 ? 0 : view.getUint32(end + 16, true);
  for (let left = end < 0 ? 0 : view.getUint16(end + 10, true); left; left--) {
    const [size, nameSize, extra, comment, start] = [
      view.getUint32(entry + 24, true),
      view.getUint16(entry + 28, true),
      view.getUint16(entry + 30, true),
      view.getUint16(entry + 32, true),
      view.getUint32(entry + 42, true),
    ];
    const file = text.decode(bytes.subarray(entry + 46, entry + 46 + nameSize));
    if (file === "vocab.txt") {
      const [ours, theirs] = [26, 28].map((i) => view.getUint16(start + i, true));
      const from = start + 30 + ours + theirs;
      const lines = text.decode(bytes.subarray(from, from + size)).split("\n");
      return new Set(lines.slice(0, -1));
    }
    entry += 46 + nameSize + extra + comment;
  }
  throw new Trouble(
    `${name} holds no vocabulary, so MediaPipe cannot read text with it: it ` +
      'was exported without task="text_classifier", or cut short.',
  );
}

// Each a token of its own: punctuation, signs of ASCII, Chinese characters.
const ALONE =
  "\\p{P}$+<=>^`|~\\u3400-\\u4DBF\\u4E00-\\u9FFF\\uF900-\\uFAFF" +
  "\\u{20000}-\\u{2A6DF}\\u{2A700}-\\u{2CEAF}\\u{2F800}-\\u{2FA1F}";
const WORDS = new RegExp(`[${ALONE}]|[^ ${ALONE}]+`, "gu");

/** The WordPiece tokens of a normalized text, as MediaPipe cuts it. */
function tokenize(text) {
  const words = text.match(WORDS);
  return ["[CLS]", ...(words ?? []).flatMap(pieces), "[SEP]"];
}

/** The longest pieces of a word that the vocabulary holds, from the left. */
function pieces(word) {
  if (new TextEncoder().encode(word).length > 100) return ["[UNK]"];
  const found = [];
  for (let start = 0, end; start < word.length; start = end) {
    const head = start ? "##" : "";
    end = word.length;
    while (end > start && !vocabulary.has(head + word.slice(start, end))) end--;
    if (end === start) return ["[UNK]"];
    found.push(head + word.slice(start, end));
  }
  return found;
}

// ----------------------------------------------------------------- answer

function answer() {
  const text = byId("text").value;
  if (!classifier || !text.trim()) {
    byId("result").hidden = true;
    if (classifier) byId("status").textContent = "Ready: type a text.";
    return;
  }
  const start = performance.now();
  const normalized = normalize(text);
  let categories;
  try {
    ({ categories } = classifier.classify(normalized).classifications[0]);
  } catch (cause) {
    classifier.close();
    classifier = undefined;
    showError(new Trouble("MediaPipe cannot classify this text.", { cause }));
    // It may give wrong scores from now on: the next text has another.
    const make = makeClassifier;
    make().then((made) => {
      if (make !== makeClassifier) return made.close(); // another file is chosen
      classifier = made;
      for (const id of ["text", "classify"]) byId(id).disabled = false;
    }, showError);
    return;
  }
  const time = performance.now() - start;
  const best = categories.reduce((a, b) => (b.score > a.score ? b : a));
  categories.sort((a, b) => a.index - b.index); // else rows jump as one types
  byId("error").hidden = true;
  byId("answer").replaceChildren(
    ...categories.map((category) => scoreRow(category, category === best)),
  );
  byId("status").textContent = `${labelOf(best)}, ${percent(best.score)}`;
  byId("time").textContent = `Answered in ${time.toFixed(1)} ms.`;
  showEncoding(tokenize(normalized));
  byId("result").hidden = false;
  byId("result").dataset.text = text;
}

const labelOf = ({ categoryName, index }) => categoryName || `Class ${index}`;
const percent = (score) => `${(100 * score).toFixed(1)} %`;

function scoreRow(category, isBest) {
  const [row, label, score, track, bar] = ["li", "span", "span", "div", "div"].map(
    (name) => document.createElement(name),
  );
  row.className = isBest ? "best" : "";
  row.dataset.label = labelOf(category);
  row.dataset.score = category.score;
  label.textContent = labelOf(category);
  score.className = "score";
  score.textContent = percent(category.score);
  track.className = "track";
  bar.className = "bar";
  bar.style.width = `${100 * Math.min(1, Math.max(0, category.score))}%`;
  track.append(bar);
  row.append(label, score, track);
  return row;
}

// --------------------------------------------------------------- encoding

/** Vaswani et al. 2017, 3.5, in float64: all sines, and then all cosines. */
function encoding(position, width) {
  const angles = Array.from(
    { length: width / 2 },
    (_, i) => position / 10000 ** ((2 * i) / width),
  );
  return [...angles.map(Math.sin), ...angles.map(Math.cos)];
}

/** Blue for -1, white for 0, red for 1. */
function color(value) {
  const end = value < 0 ? [33, 102, 172] : [178, 24, 43];
  return end.map((c) => 247 + Math.abs(value) * (c - 247));
}

function showEncoding(tokens) {
  const canvas = byId("encoding");
  canvas.width = WIDTH;
  canvas.height = tokens.length;
  canvas.style.height = `calc(var(--cell) * ${tokens.length})`;
  const context = canvas.getContext("2d");
  const image = context.createImageData(WIDTH, tokens.length);
  tokens.forEach((_, position) =>
    encoding(position, WIDTH).forEach((value, i) =>
      image.data.set([...color(value), 255], 4 * (position * WIDTH + i)),
    ),
  );
  context.putImageData(image, 0, 0);
  const caption =
    `${tokens.length} tokens, each position in ${WIDTH} dimensions: sines on ` +
    "the left, cosines on the right, ever slower from left to right.";
  canvas.setAttribute("aria-label", `Heat map. ${caption}`);
  byId("caption").textContent = caption;
  byId("tokens").replaceChildren(
    ...tokens.map((token) => {
      const item = document.createElement("li");
      item.textContent = item.title = token;
      return item;
    }),
  );
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
byId("text").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    answerAfter(0);
  }
});
byId("file").addEventListener("change", ({ target }) =>
  loading(async () => {
    const [file] = target.files;
    if (!mediapipe || !wasm) await loadMediaPipe();
    if (file) await useModel(new Uint8Array(await file.arrayBuffer()), file.name);
  }),
);
loading(async () => {
  await loadMediaPipe();
  await useModel(await fetchModel(), MODEL);
  if (matchMedia("(pointer: fine)").matches) byId("text").focus();
});
