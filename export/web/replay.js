"use strict";

// Of the page's address: replay.html?model=NAME, with NAME.cases.npz next to it.
const MODEL = new URLSearchParams(location.search).get("model");
const MODULES = "./node_modules";

const byId = (id) => document.getElementById(id);

// WebAssembly may throw numbers.
const messageOf = (error) => error?.message ?? String(error);

const mapped = (object, change) =>
  Object.fromEntries(
    Object.entries(object).map(([name, each]) => [name, change(each)]),
  );

// -------------------------------------------------------------- runtimes

/** Runs signatures in LiteRT: numbers by name to numbers by name. */
async function inLiteRt(bytes) {
  const litert = await import(`${MODULES}/@litertjs/core/dist/index.js`);
  await litert.loadLiteRt(`${MODULES}/@litertjs/core/wasm/`);
  let model;
  return async (signature, inputs) => {
    model ??= await litert.loadAndCompile(bytes, { accelerator: "wasm" });
    const given = {};
    let found;
    try {
      for (const [name, { values, shape }] of Object.entries(inputs)) {
        given[name] = new litert.Tensor(values, shape);
      }
      found = await model.run(signature, given);
      return mapped(found, (tensor) => ({
        values: tensor.toTypedArray(),
        shape: [...tensor.type.layout.dimensions],
      }));
    } catch (error) {
      // It may give wrong numbers from now on: the next case has another.
      model.delete();
      model = undefined;
      throw error;
    } finally {
      for (const tensors of [given, found ?? {}]) {
        for (const tensor of Object.values(tensors)) tensor.delete();
      }
    }
  };
}

/** Runs a file of one signature in ONNX Runtime. */
async function inOnnxRuntime(bytes) {
  const ort = await import(`${MODULES}/onnxruntime-web/dist/ort.wasm.min.mjs`);
  const session = await ort.InferenceSession.create(bytes);
  return async (_, inputs) => {
    const tensor = ({ type, values, shape }) =>
      new ort.Tensor(TYPES[type][1], values, shape);
    const found = await session.run(mapped(inputs, tensor));
    return mapped(found, ({ data, dims }) => ({ values: data, shape: dims }));
  };
}

const RUNTIMES = {
  litert: ["LiteRT.js", inLiteRt],
  onnx: ["ONNX Runtime Web", inOnnxRuntime],
};

// ----------------------------------------------------------------- replay

/** Runs all cases of a file, and shows each output's largest difference. */
async function replay(name, bytes, content) {
  byId("status").textContent = `Running the cases of ${name}…`;
  byId("error").hidden = byId("result").hidden = true;
  const record = readCases(content);
  const sum = new Uint8Array(await crypto.subtle.digest("SHA-256", bytes));
  const digits = [...sum].map((byte) => byte.toString(16).padStart(2, "0"));
  if (digits.join("") !== record.files[""]) {
    throw new Error(`${name} is not the file that its cases are of.`);
  }
  const [title, load] = RUNTIMES[record.kind];
  const run = await load(bytes);
  const largest = {}; // of each output, what it is of the allowed difference
  const errors = {};
  for (const { signature, inputs, outputs, is_sample } of record.cases) {
    const found = await run(signature, inputs).catch((error) => {
      errors[signature] ??= messageOf(error);
    });
    for (const [output, wanted] of Object.entries(found ? outputs : {})) {
      const place = `${signature}/${output}`;
      try {
        const now = share(wanted, found[output], is_sample);
        largest[place] = Math.max(largest[place] ?? 0, now);
      } catch (error) {
        errors[place] ??= messageOf(error);
      }
    }
  }
  const places = [...new Set(Object.keys({ ...largest, ...errors }))].sort();
  const isWrong = (place) => place in errors || largest[place] > 1;
  const words = (place) =>
    errors[place] ?? `${Number(largest[place].toPrecision(2))} of what is allowed`;
  byId("answer").replaceChildren(
    ...places.map((place) => {
      const line = document.createElement("li");
      const state = isWrong(place) ? "DIFFERENT" : "equal";
      line.textContent = `${place}: ${state}: ${words(place)}`;
      return line;
    }),
  );
  const state = places.some(isWrong) ? "DIFFERENT" : "equal";
  const count = `${record.cases.length} cases in ${title}`;
  byId("status").textContent = `${name}: ${state} in ${count}.`;
  byId("result").hidden = false;
}

// ----------------------------------------------------------------- events

async function fetched(name) {
  const answer = await fetch(name);
  if (!answer.ok) throw new Error(`There is no ${name} (${answer.status}).`);
  return new Uint8Array(await answer.arrayBuffer());
}

const chosen = async (file) => new Uint8Array(await file.arrayBuffer());

function showError(error) {
  byId("status").textContent = "";
  byId("error").textContent = messageOf(error);
  byId("error").hidden = false;
}

byId("form").addEventListener("change", async () => {
  const [[model], [cases]] = ["model", "cases"].map((id) => byId(id).files);
  if (!model || !cases) return;
  const both = await Promise.all([model, cases].map(chosen));
  replay(model.name, ...both).catch(showError);
});

if (MODEL !== null) {
  Promise.all([MODEL, `${MODEL}.cases.npz`].map(fetched))
    .then((both) => replay(MODEL, ...both))
    .catch(showError);
}
