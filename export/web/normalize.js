"use strict";

// What MediaPipe leaves to the app: of a text's letters it lowers those of ASCII
// alone, and cuts at white space of ASCII alone. A model's WordpieceTokenizer
// folds all case, width and accents; so must a text before MediaPipe sees it.

/** The text as the tokenizer of the model normalizes it. */
function normalize(text) {
  return Array.from(text.normalize("NFKD"), foldCase)
    .join("")
    .normalize("NFKD")
    .replace(/[\p{Mn}\p{Default_Ignorable_Code_Point}]/gu, "")
    .replace(/[\p{Cc}\p{Cf}\p{Z}]/gu, " ");
}

/** Unicode's case folding of a letter: not always its lower case. */
function foldCase(letter) {
  if (letter === "ı") return letter; // whose capital is that of i
  if (/\p{Script=Cherokee}/u.test(letter)) return letter.toUpperCase();
  return letter.toLowerCase().toUpperCase().toLowerCase();
}

/** The same for a tokenizer with normalization="bert", as encoders of Hugging
 * Face have it, which keeps what is alike by compatibility alone: "ß" and "…". Accents
 * too where the tokenizer has strip_accents=False. */
function normalizeBert(text, stripAccents = true) {
  const bare = stripAccents
    ? text.normalize("NFD").replace(/\p{Mn}/gu, "")
    : text;
  return Array.from(bare.replace(/[\p{Cf}\p{Co}\ufffd]/gu, ""), (letter) =>
    letter.toLowerCase(),
  )
    .join("")
    .replace(/(?![\t\n\r])\p{Cc}/gu, "")
    .replace(/\p{Z}/gu, " ");
}

/** The one that a tokenizer needs, by its own options. */
function normalizerOf({ normalization, strip_accents }) {
  if (normalization !== "bert") return normalize;
  return (text) => normalizeBert(text, strip_accents ?? true);
}
