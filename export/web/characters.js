"use strict";

// What LiteRT leaves to the app: text to ids and back, as the CharacterTokenizer
// of the model does it. `tokenizer` is its config, as Python wrote it.

const [PADDING, UNKNOWN, START, END, FIRST] = [0, 1, 2, 3, 4];

/** The ids of a text in a row of so many, and the characters it does not know. */
function toIds(text, tokenizer, length) {
  const known = new Map(tokenizer.vocabulary.map((c, i) => [c, FIRST + i]));
  // By code point; half a surrogate pair is no character of UTF-8.
  const characters = Array.from(text.toWellFormed?.() ?? text);
  const unknown = [...new Set(characters.filter((c) => !known.has(c)))];
  const frame = tokenizer.add_start + tokenizer.add_end;
  let ids = characters.map((c) => known.get(c) ?? UNKNOWN);
  const most = tokenizer.sequence_length ?? Infinity;
  ids = ids.slice(0, most - frame); // as the tokenizer cuts
  if (tokenizer.add_start) ids.unshift(START);
  if (tokenizer.add_end) ids.push(END);
  if (ids.length > length) {
    throw new RangeError(
      `The text has ${characters.length} characters, and the model takes ` +
        `${length - frame}.`,
    );
  }
  const row = new Int32Array(length).fill(PADDING);
  row.set(ids);
  return { row, unknown };
}

/** The text of ids, up to the first end symbol. */
function toText(ids, tokenizer) {
  const found = [...ids];
  const end = found.indexOf(END);
  return found
    .slice(0, end < 0 ? found.length : end)
    .filter((id) => id !== PADDING && id !== START)
    .map((id) => tokenizer.vocabulary[id - FIRST] ?? "\ufffd")
    .join("");
}
