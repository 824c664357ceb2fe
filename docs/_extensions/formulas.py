"""Formulas of docstrings, which are plain text there, as the site sets them."""

# By their text without line breaks.
LATEX = {
    "sin(p w_j)": r"\sin(p\,w_j)",
    "cos(p w_j)": r"\cos(p\,w_j)",
    "w_j = max_wavelength ** (-2 j / dim)": (
        r"w_j = \mathrm{max\_wavelength}^{-2j/\mathrm{dim}}"
    ),
    "angle = position / max_wavelength ** (2 * (i // 2) / d_model)": (
        r"\mathrm{angle} = \frac{\mathrm{position}}"
        r"{\mathrm{max\_wavelength}^{2\lfloor i/2\rfloor/d_\mathrm{model}}}"
    ),
    "position * max_wavelength ** (-2 j / dim)": (
        r"\mathrm{position}\cdot\mathrm{max\_wavelength}^{-2j/\mathrm{dim}}"
    ),
    "position * 2 ** -24": r"\mathrm{position}\cdot 2^{-24}",
    "max_wavelength = 10000 ** (n / (n - 1))": (
        r"\mathrm{max\_wavelength} = 10000^{n/(n-1)}"
    ),
    "n = dim / 4": r"n = \mathrm{dim}/4",
    "2 ** (-alibi_bias_max * h / n)": (
        r"2^{-\mathrm{alibi\_bias\_max}\cdot h/n}"
    ),
    "log(1 + c distance) / log(1 + c reach)": (
        r"\frac{\log(1 + c\cdot\mathrm{distance})}"
        r"{\log(1 + c\cdot\mathrm{reach})}"
    ),
    "-scale * log(1 + rate * distance)": (
        r"-\mathrm{scale}\cdot\log(1 + \mathrm{rate}\cdot\mathrm{distance})"
    ),
    "-scale * distance ** exponent": (
        r"-\mathrm{scale}\cdot\mathrm{distance}^{\mathrm{exponent}}"
    ),
    "query · a[distance]": r"\mathrm{query}\cdot a_\mathrm{distance}",
    "sin(2 pi f t + phase)": r"\sin(2\pi f t + \mathrm{phase})",
    "(q · k + u · k + (q + v) · W R(i - j)) / sqrt(dim)": (
        r"\frac{q\cdot k + u\cdot k + (q + v)\cdot W R(i - j)}"
        r"{\sqrt{\mathrm{dim}}}"
    ),
    "PE(p + k) = M_k @ PE(p)": r"\mathrm{PE}(p + k) = M_k\,\mathrm{PE}(p)",
    "k w_j": r"k\,w_j",
    "kernel + (alpha / rank) * a @ b": (
        r"\mathrm{kernel} + \frac{\alpha}{\mathrm{rank}}\,a\,b"
    ),
    "scale * d_model**-0.5 * min(n**-0.5, n * warmup_steps**-1.5)": (
        r"\mathrm{scale}\cdot d_\mathrm{model}^{-0.5}\cdot"
        r"\min(n^{-0.5},\; n\cdot\mathrm{warmup\_steps}^{-1.5})"
    ),
    "scale / sqrt(d_model * warmup_steps)": (
        r"\frac{\mathrm{scale}}"
        r"{\sqrt{d_\mathrm{model}\cdot\mathrm{warmup\_steps}}}"
    ),
    "sqrt(dim)": r"\sqrt{\mathrm{dim}}",
    "1 / sqrt(dim)": r"1/\sqrt{\mathrm{dim}}",
    "1 / sqrt(head_dim)": r"1/\sqrt{\mathrm{head\_dim}}",
    "sqrt(d_model)": r"\sqrt{d_\mathrm{model}}",
    "x = norm(x + attention(x))": (
        r"x = \mathrm{norm}(x + \mathrm{attention}(x))"
    ),
    "x = x + attention(norm(x))": (
        r"x = x + \mathrm{attention}(\mathrm{norm}(x))"
    ),
}
