"""Every encoding once more in NumPy float64: the tests' oracle.

Written from the papers, plain rather than fast, and sharing no code with the
layers it judges. Weights come as dictionaries of arrays: kernels of shape
(in, out) under `<name>_kernel`, and `<name>_bias`, which may be absent.
"""

import math
from decimal import Decimal, localcontext
from fractions import Fraction

import numpy as np


def get_angles(position, i, d_model, max_wavelength=10000.0):
    """Angle of column `i`: position / max_wavelength^(2 (i // 2) / d_model).

    Radians, float64 with its rounding (`positional_encoding` is more exact far
    out). Vaswani et al., Attention Is All You Need (2017), section 3.5.
    """
    # A float32 width would otherwise pull the whole quotient to float32.
    exponent = 2 * (np.asarray(i) // 2) / float(d_model)
    scale = np.power(float(max_wavelength), exponent)
    return np.asarray(np.asarray(position, np.float64) / scale)


def positional_encoding(
    position, d_model, max_wavelength=10000.0, layout="interleaved"
):
    """Sinusoidal encoding, within 3e-15 for positions up to 2**24.

    Of the positions 0 to position - 1, or of an array of real positions: shape
    positions.shape + (d_model,). Even columns are sines and odd ones cosines
    ("interleaved"), or all the sines come first ("halves").
    Vaswani et al., Attention Is All You Need (2017), section 3.5.
    """
    if isinstance(position, int | np.integer):
        position = np.arange(position)
    positions = np.asarray(position, np.float64)
    whole = np.floor(positions)
    fraction = positions - whole
    encoding = np.empty((*positions.shape, d_model))
    for column in range(d_model):
        # angle = coarse + fine, where `coarse` carries no rounding at all.
        head, tail = _frequency(column // 2, d_model, max_wavelength)
        coarse = whole * head
        fine = whole * tail + fraction * (head + tail)
        encoding[..., column] = _wave(coarse, fine)[column % 2]
    if layout == "halves":
        sines, cosines = encoding[..., 0::2], encoding[..., 1::2]
        encoding = np.concatenate([sines, cosines], axis=-1)
    return encoding


def phases(positions, rates):
    """Sines and cosines of positions times rates, within 3e-15 up to 2**24.

    `positions` (...) and `rates` (pairs,), in radians per position, give two
    arrays of shape (..., pairs).
    """
    positions = np.asarray(positions, np.float64)[..., np.newaxis]
    rates = np.asarray(rates, np.float64)
    whole = np.floor(positions)
    # 24 bits of a rate times a whole position are exact in float64.
    head = rates.astype(np.float32).astype(np.float64)
    fine = whole * (rates - head) + (positions - whole) * rates
    return _wave(whole * head, fine)


def _wave(coarse, fine):
    """Sine and cosine of the sum of two angles."""
    sin, cos = np.sin(coarse), np.cos(coarse)
    return (
        sin * np.cos(fine) + cos * np.sin(fine),
        cos * np.cos(fine) - sin * np.sin(fine),
    )


def _columns(pair, pairs, layout):
    """The two columns of a pair of features."""
    if layout == "interleaved":
        return 2 * pair, 2 * pair + 1
    return pair, pairs + pair


def _turn(x, sines, cosines, layout):
    """Turns pair j of the features by column j of the angles, not the rest."""
    turned = x.copy()
    pairs = sines.shape[-1]
    for j in range(pairs):
        sin, cos = sines[..., j], cosines[..., j]
        first, second = _columns(j, pairs, layout)
        a, b = x[..., first], x[..., second]
        turned[..., first] = a * cos - b * sin
        turned[..., second] = a * sin + b * cos
    return turned


def rotary_embedding(x, positions, rates, layout="halves"):
    """Turn pair j of the features by positions * rates[j]; leave the rest.

    `x` (..., seq, dim), `positions` to broadcast to (..., seq), `rates` in
    radians per position. Pair j is columns 2 j and 2 j + 1 ("interleaved", the
    paper), or j and pairs + j ("halves").
    Su et al., RoFormer (2021), section 3.2.2.
    """
    return _turn(np.asarray(x, np.float64), *phases(positions, rates), layout)


def rotate_by_axes(x, positions, *, pairs, layout, max_wavelength=10000.0):
    """Turn the first pairs of features by the first axis, and so on.

    `x` (..., seq, dim), `positions` to broadcast to (..., seq, axes), each of
    which has `pairs`. Heo et al., Rotary Position Embedding for Vision
    Transformer (2024), equations 7 and 8, for any number of axes: pair t of an
    axis turns by its position times theta_t, as if its pairs were a head.
    """
    rates = max_wavelength ** (-np.arange(pairs) / pairs)
    angles = np.asarray(positions, np.float64)[..., np.newaxis] * rates
    angles = angles.reshape(*angles.shape[:-2], -1)
    return _turn(
        np.asarray(x, np.float64), np.sin(angles), np.cos(angles), layout
    )


def alibi_bias(
    query_positions,
    key_positions,
    num_heads,
    alibi_bias_max=8.0,
    bidirectional=True,
):
    """Linear biases, (..., heads, query, key), of positions (..., query/key).

    Press et al., Train Short, Test Long (2021), section 3, with the slopes of
    their published code where heads are no power of two.
    """

    def slopes(n):
        if n & (n - 1) == 0:
            return [2 ** (-alibi_bias_max * (h + 1) / n) for h in range(n)]
        below = 2 ** int(math.log2(n))
        return slopes(below) + slopes(2 * below)[0::2][: n - below]

    q = np.asarray(query_positions, np.float64)[..., :, np.newaxis]
    k = np.asarray(key_positions, np.float64)[..., np.newaxis, :]
    distance = np.abs(q - k) if bidirectional else np.maximum(q - k, 0.0)
    return np.stack([-m * distance for m in slopes(num_heads)], axis=-3)


def kerple_bias(distance, scale, shape, variant="log"):
    """Kernelised biases, (..., heads, query, key), of distances >= 0.

    Chi et al., KERPLE (2022), equation 5: -scale log(1 + shape distance)
    ("log") or -scale distance^shape ("power"); `scale` and `shape` (heads,).
    """
    d = np.asarray(distance, np.float64)
    biases = []
    for r1, r2 in zip(np.asarray(scale), np.asarray(shape), strict=True):
        biases.append(
            -r1 * np.log(1 + r2 * d) if variant == "log" else -r1 * d**r2
        )
    return np.stack(biases, axis=-3)


def fire_bias(query_positions, key_positions, rate, threshold, weights):
    """Interpolated biases of keys up to the query, (..., heads, query, key).

    Li et al., Functional Interpolation for Relative Positions Improves Long
    Context Transformers (2023), equations 3 to 5, with a network of one ReLU
    layer: `weights` hold `hidden` and `output` kernels and biases. Pairs whose
    key is later have NaN: the paper has no bias for them.
    """
    q = np.asarray(query_positions, np.float64)[..., :, np.newaxis]
    k = np.asarray(key_positions, np.float64)[..., np.newaxis, :]
    distance = np.where(q >= k, q - k, np.nan)
    reach = np.maximum(q, threshold)
    share = np.log(rate * distance + 1) / np.log(rate * reach + 1)
    hidden = _dense(share[..., np.newaxis], weights, "hidden")
    outputs = _dense(np.maximum(hidden, 0.0), weights, "output")
    return np.moveaxis(outputs, -1, -3)


def xpos_scores(
    query,
    key,
    query_positions,
    key_positions,
    scale_base=512.0,
    max_wavelength=10000.0,
    layout="halves",
):
    """Products of queries and earlier keys, (query, key), with xPos.

    Sun et al., A Length-Extrapolatable Transformer (2022), algorithm 1 with the
    published gamma = 0.4: pair by pair, from the distance alone. `query` and
    `key` are (seq, dim).
    """
    q, k = (np.asarray(x, np.float64) for x in (query, key))
    dim = q.shape[-1]
    rates = max_wavelength ** (-2 * np.arange(dim // 2) / dim)
    apart = np.subtract.outer(
        np.asarray(query_positions, np.float64), np.asarray(key_positions)
    )
    scores = np.zeros(apart.shape)
    for j in range(dim // 2):
        a, b = _columns(j, dim // 2, layout)
        sin, cos = (x[..., 0] for x in phases(apart, rates[j : j + 1]))
        same = np.outer(q[:, a], k[:, a]) + np.outer(q[:, b], k[:, b])
        cross = np.outer(q[:, a], k[:, b]) - np.outer(q[:, b], k[:, a])
        zeta = (2 * j + 0.4 * dim) / (1.4 * dim)
        scores += zeta ** (apart / scale_base) * (same * cos + cross * sin)
    return scores


def forgetting_bias(gates):
    """Sums of log forget gates, (query, key), of earlier keys; NaN for later.

    Lin et al., Forgetting Transformer (2025), equation 5: of the gates, (seq,),
    after the key up to the query.
    """
    logs = [math.log(gate) for gate in np.asarray(gates, np.float64)]
    bias = np.full((len(logs), len(logs)), np.nan)
    for i in range(len(logs)):
        for j in range(i + 1):
            bias[i, j] = math.fsum(logs[j + 1 : i + 1])
    return bias


def contextual_bias(query, key, embeddings, visible):
    """Scores of contextual positions, (query, key).

    Golovneva et al., Contextual Position Encoding (2024), equations 3 to 6,
    with gates of the scaled scores of visible keys, as in the published code.
    `query` (query, dim), not scaled; `key` (key, dim); `embeddings`
    (max_position + 1, dim); `visible`, bool (query, key).
    """
    q, k, e = (np.asarray(x, np.float64) for x in (query, key, embeddings))
    seen = np.asarray(visible)
    bias = np.empty(seen.shape)
    for i, row in enumerate(q):
        logits = k @ row / math.sqrt(len(row))
        gates = np.where(seen[i], 1 / (1 + np.exp(-logits)), 0.0)
        for j in range(len(k)):
            place = min(math.fsum(gates[j:]), len(e) - 1)
            low, high = math.floor(place), math.ceil(place)
            share = place - low
            bias[i, j] = row @ (share * e[high] + (1 - share) * e[low])
    return bias


def attention_temperature(positions, attn_scale, floor_scale):
    """Llama 4's factor of the queries at positions of 0 and more."""
    n = np.asarray(positions, np.float64) + 1
    return 1 + attn_scale * np.log(1 + np.floor(n / floor_scale))


def positions_from_mask(mask):
    """Position of each token among the real ones: max(cumsum(mask) - 1, 0).

    `mask` (..., seq), true for a real token; same shape out. Real tokens get
    0, 1, 2, ...; padding repeats the last position before it.
    """
    real = np.asarray(mask, bool)
    positions = np.zeros(real.shape, np.int64)
    for row in np.ndindex(real.shape[:-1]):
        count = 0
        for t in range(real.shape[-1]):
            count += int(real[row][t])
            positions[(*row, t)] = max(count - 1, 0)
    return positions


def positions_from_segments(segment_ids):
    """Position of each token in its segment, a contiguous run of one id.

    `segment_ids` (..., seq); same shape out.
    """
    ids = np.asarray(segment_ids)
    positions = np.zeros(ids.shape, np.int64)
    for row in np.ndindex(ids.shape[:-1]):
        for t in range(1, ids.shape[-1]):
            if ids[row][t] == ids[row][t - 1]:
                positions[(*row, t)] = positions[(*row, t - 1)] + 1
    return positions


def index_encoding(positions, segment_ids=None, mask=None, normalize=False):
    """The position itself, or over the number of real tokens around it.

    Those of the row, or of the token's segment: a contiguous run of one id.
    Where there are none, over 1. `positions` (batch, seq), like the others;
    out (batch, seq, 1).
    """
    index = np.asarray(positions, np.float64)
    if normalize:
        ids = np.zeros(index.shape) if segment_ids is None else segment_ids
        real = np.ones(index.shape, bool) if mask is None else np.asarray(mask)
        starts = np.diff(np.asarray(ids), axis=1, prepend=np.nan) != 0
        runs = np.cumsum(starts, axis=1)
        same = runs[:, :, np.newaxis] == runs[:, np.newaxis]
        around = np.sum(same & real[:, np.newaxis].astype(bool), axis=-1)
        index = index / np.maximum(around, 1)
    return index[..., np.newaxis]


def resized_table(table, length):
    """A learned table (rows, width) stretched linearly to `length` rows.

    Row i of the result lies at i (rows - 1) / (length - 1) in the old one, so
    that both ends stay; a single row is the first.
    """
    rows = np.asarray(table, np.float64)
    places = np.linspace(0, len(rows) - 1, length)
    old = np.arange(len(rows))
    columns = [np.interp(places, old, column) for column in rows.T]
    return np.stack(columns, axis=-1)


def axial_encoding(
    shape,
    dim,
    max_wavelength=10000.0,
    layout="interleaved",
    last_axis_first=False,
):
    """Sinusoids of each coordinate of a grid, side by side: (*shape, dim).

    Each axis takes the smallest even number of columns that is enough for all
    to fill `dim`, and what is too many is cut off at the end. Dosovitskiy et
    al. (2021), appendix D.4; Wang and Liu (2019); He et al. (2021), whose
    columns begin with those of the last axis.
    """
    width = 2 * math.ceil(dim / (2 * len(shape)))
    tables = [
        positional_encoding(size, width, max_wavelength, layout)
        for size in shape
    ]
    encoding = np.empty((*shape, dim))
    for cell in np.ndindex(*shape):
        rows = [tables[axis][i] for axis, i in enumerate(cell)]
        rows = rows[::-1] if last_axis_first else rows
        encoding[cell] = np.concatenate(rows)[:dim]
    return encoding


def time_angles(positions, frequencies):
    """2 pi frequency times position, less whole turns.

    Computed in rational numbers from every bit that is given, up to the last
    rounding to float64. Frequencies are in turns for each unit of position.
    `positions` (...), out (..., len(frequencies)).
    Kazemi et al., Time2Vec (2019); Tancik et al., Fourier Features (2020).
    """
    times = np.asarray(positions)
    angles = np.empty((*times.shape, len(frequencies)))
    for place in np.ndindex(times.shape):
        time = Fraction(times[place].item())
        for column, frequency in enumerate(frequencies):
            turns = time * Fraction(frequency)
            turn = float(turns - round(turns))
            angles[(*place, column)] = 2 * math.pi * turn
    return angles


def scaled_dot_product_attention(query, key, value, mask=None, bias=None):
    """softmax(query key^T / sqrt(dim) + bias) value, over the allowed keys.

    Gives the output (..., query, value dim) and the weights (..., query, key).
    `mask` (true = attend) and `bias` broadcast to the weights; a query with no
    key to attend to weighs all keys alike.
    Vaswani et al., Attention Is All You Need (2017), section 3.2.1.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    scores = q @ np.swapaxes(k, -1, -2) / math.sqrt(q.shape[-1])
    if bias is not None:
        scores = scores + np.asarray(bias, np.float64)
    if mask is not None:
        allowed = np.asarray(mask, bool)
        scores = np.where(allowed, scores, -np.inf)
        nothing = ~np.any(scores > -np.inf, axis=-1, keepdims=True)
        scores = np.where(nothing, 0.0, scores)
    weights = np.exp(scores - np.max(scores, axis=-1, keepdims=True))
    weights = weights / np.sum(weights, axis=-1, keepdims=True)
    return weights @ v, weights


def relative_attention(
    query,
    key,
    value,
    positions,
    key_embeddings,
    value_embeddings=None,
    mask=None,
):
    """Attention with relative keys and values, pair by pair.

    `query` (not scaled), `key` and `value` are (..., seq, dim), `positions`
    (..., seq) whole numbers. Embeddings are (2 k + 1, dim), from distance -k
    (key before query) to k. Shaw et al., Self-Attention with Relative Position
    Representations (2018), equations 3 and 4, with clipping as in section 3.2.
    """
    q, k, v = (np.asarray(x, np.float64) for x in (query, key, value))
    keys = np.asarray(key_embeddings, np.float64)
    reach = len(keys) // 2
    where = np.asarray(positions)
    relative = where[..., np.newaxis, :] - where[..., :, np.newaxis]
    rows = np.clip(relative, -reach, reach) + reach
    term = np.einsum("...qd,...qkd->...qk", q, keys[rows])
    bias = term / math.sqrt(q.shape[-1])
    output, weights = scaled_dot_product_attention(q, k, v, mask, bias)
    if value_embeddings is not None:
        values = np.asarray(value_embeddings, np.float64)[rows]
        output = output + np.einsum("...qk,...qkd->...qd", weights, values)
    return output


# `next_token` gives, of the tokens so far, the log-probability of each id.


def greedy_search(next_token, prompt, max_length, end_ids=(), min_length=0):
    """The likeliest token each time: what follows the prompt, and its scores.

    At most `max_length` tokens; id 0 is padding, which is never chosen, and an
    end symbol only behind `min_length` others.
    """
    found = ()
    scores = []
    while len(found) < max_length and not (found and found[-1] in end_ids):
        choices = _choices(next_token, prompt, found, end_ids, min_length)
        score, token = max((s, -token) for token, s in choices)
        found, scores = (*found, -token), [*scores, score]
    return found, scores


def beam_search(
    next_token,
    prompt,
    max_length,
    beams,
    end_ids=(),
    length_penalty=0.0,
    min_length=0,
):
    """The `beams` best sequences found, best first, with their ranks.

    A rank is a log-likelihood over ((5 + n) / 6) ** length_penalty. Wu et al.,
    Google's Neural Machine Translation System (2016), section 7.
    """
    kept = [(0.0, ())]
    for _ in range(max_length):
        grown = []
        for total, found in kept:
            if found and found[-1] in end_ids:
                grown.append((total, found))
                continue
            for token, score in _choices(
                next_token, prompt, found, end_ids, min_length
            ):
                grown.append((total + score, (*found, token)))
        grown.sort(key=lambda each: -_rank(each[0], each[1], length_penalty))
        kept = grown[:beams]
    return [
        (_rank(total, found, length_penalty), found) for total, found in kept
    ]


def all_sequences(
    next_token, prompt, max_length, end_ids=(), length_penalty=0.0, min_length=0
):
    """Every sequence there is, best first, with their ranks: no search."""
    done = []
    still = [(0.0, ())]
    while still:
        total, found = still.pop()
        if len(found) == max_length or (found and found[-1] in end_ids):
            done.append((_rank(total, found, length_penalty), found))
            continue
        for token, score in _choices(
            next_token, prompt, found, end_ids, min_length
        ):
            still.append((total + score, (*found, token)))
    return sorted(done, reverse=True)


def sampling_distribution(
    logits, temperature=1.0, top_k=None, top_p=1.0, min_p=0.0
):
    """With what probability each id is drawn, one row of logits.

    Fan et al., Hierarchical Neural Story Generation (2018): top-k. Holtzman et
    al., The Curious Case of Neural Text Degeneration (2020): top-p, the fewest
    of the likeliest that hold this probability. Nguyen et al., Turning Up the
    Heat (2024): min-p, a share of the likeliest.
    """
    logits = np.asarray(logits, np.float64) / temperature
    order = np.argsort(-logits, kind="stable")[:top_k]
    chances = np.exp(logits[order] - logits.max())
    chances = chances / chances.sum()
    while top_p < 1 and chances[:-1].sum() >= top_p:
        chances = chances[:-1]
    # What is left is not made to sum to 1 before the last one is dropped.
    chances = chances[chances >= min_p * chances[0]]
    result = np.zeros(len(logits))
    result[order[: len(chances)]] = chances / chances.sum()
    return result


def _choices(next_token, prompt, found, end_ids, min_length):
    scores = np.asarray(next_token((*prompt, *found)), np.float64)
    return [
        (token, float(score))
        for token, score in enumerate(scores)
        if token > 0 and (token not in end_ids or len(found) >= min_length)
    ]


def _rank(total, found, length_penalty):
    return float(total / ((5 + len(found)) / 6) ** length_penalty)


def _frequency(pair, d_model, max_wavelength):
    """The frequency max_wavelength^(-2 pair / d_model) as head + tail.

    One float64 would put 2**24 * 2**-53 = 2e-9 on the angle, and an 80-bit
    longdouble, where there is one, 1e-12. The 24 bits of the head times a
    whole position of up to 29 bits are exact in float64, and the tail holds
    the rest of the frequency to a further 53 bits.
    """
    with localcontext() as context:
        context.prec = 50
        exponent = Decimal(-2 * pair) / Decimal(d_model)
        frequency = Decimal(float(max_wavelength)) ** exponent
        head = float(np.float32(float(frequency)))
        return head, float(frequency - Decimal(head))


def _dense(x, weights, name):
    kernel = np.asarray(weights[f"{name}_kernel"], np.float64)
    bias = np.asarray(weights.get(f"{name}_bias", 0.0), np.float64)
    return np.asarray(x @ kernel + bias)
