"use strict";

// The cases that an exported model was verified with, as NAME.cases.npz keeps them:
// an uncompressed zip of record.json and of arrays in NumPy's format.

// NumPy's types, as arrays here and by their names in ONNX Runtime.
const TYPES = {
  f8: [Float64Array, "float64"],
  f4: [Float32Array, "float32"],
  f2: [globalThis.Float16Array, "float16"],
  i8: [BigInt64Array, "int64"],
  u8: [BigUint64Array, "uint64"],
  i4: [Int32Array, "int32"],
  u4: [Uint32Array, "uint32"],
  i2: [Int16Array, "int16"],
  u2: [Uint16Array, "uint16"],
  i1: [Int8Array, "int8"],
  u1: [Uint8Array, "uint8"],
  b1: [Uint8Array, "bool"],
};

/** The record of a file of cases, with its arrays. */
function readCases(bytes) {
  const members = unzipped(bytes);
  const text = new TextDecoder().decode(members["record.json"]);
  return JSON.parse(text, (_, value) =>
    typeof value?.["\0numbers"] === "string"
      ? array(members[`${value["\0numbers"]}.npy`])
      : value,
  );
}

const latin = (bytes) => String.fromCharCode(...bytes);

/** The members of a zip file, by its directory, which stands at the end. */
function unzipped(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.length);
  const short = (at) => view.getUint16(at, true);
  const long = (at) => view.getUint32(at, true);
  const end = bytes.length - 22;
  if (long(end) !== 0x06054b50) throw new Error("It is no whole zip file.");
  const members = {};
  for (let left = short(end + 10), at = long(end + 16); left > 0; left--) {
    if (short(at + 10)) throw new Error("It is compressed.");
    const [size, length] = [long(at + 24), short(at + 28)];
    const name = latin(bytes.subarray(at + 46, at + 46 + length));
    const local = long(at + 42);
    const start = local + 30 + short(local + 26) + short(local + 28);
    members[name] = bytes.subarray(start, start + size);
    at += 46 + length + short(at + 30) + short(at + 32);
  }
  return members;
}

function array(bytes) {
  const start = 10 + (bytes[8] | (bytes[9] << 8));
  const header = latin(bytes.subarray(10, start));
  const [, type] = /'descr': '[<|](\w\d)'/.exec(header);
  const [, sizes] = /'shape': \((.*?)\)/.exec(header);
  const shape = (sizes.match(/\d+/g) ?? []).map(Number);
  const values = new TYPES[type][0](bytes.slice(start).buffer);
  return { type, shape, values };
}

/**
 * How far an output is from the one that is wanted: of floats the largest difference,
 * relative to the number or to scale if that is larger; else the share that differs.
 * Of many numbers only some are wanted. NaN and infinity count only in a user's own case.
 */
function difference({ type, values }, got, scale, isSample, places) {
  let [largest, unequal] = [0, 0];
  for (const [index, wanted] of values.entries()) {
    const found = got[places ? places.values[index] : index];
    if (type[0] !== "f") unequal += found != wanted; // one may be a BigInt
    else if (!Object.is(found, wanted) && (isSample || Number.isFinite(wanted))) {
      const apart = Math.abs(found - wanted) / Math.max(scale, Math.abs(wanted));
      largest = Math.max(largest, Number.isNaN(apart) ? Infinity : apart);
    }
  }
  return type[0] === "f" ? largest : unequal / values.length || 0;
}

/** Of an output: the difference as a share of the allowed one, above 1 if it is wrong. */
function share(wanted, got, isSample) {
  if (`${got?.shape}` !== `${wanted.shape}`) {
    throw new Error(`shape ${got?.shape}, and the model ${wanted.shape}`);
  }
  const { values, scale, places } = wanted;
  const off = difference(values, got.values, scale, isSample, places);
  return off / wanted.allowed || 0; // 0 / 0 is equal
}
