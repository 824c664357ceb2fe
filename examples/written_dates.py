"""Dates as people write them in 46 locales, and what they mean.

    python examples/written_dates.py [--count 20] [--seed 0]

prints some. Every way of writing is one of CLDR's, which Babel carries: the
four lengths that a locale has, and its orders of day, month, year and weekday.
Years are 1970 to 2069, so that two digits of them are enough.

A text is left out if it could mean two days: if some locale writes the same
separators, or the same name of a month, around other fields, and that reading
is a day as well. The weekday is not counted, since it would only say which of
the two by arithmetic.
"""

import argparse
import datetime
import itertools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

LOCALES = """
    ar bg ca cs da de el en_GB en_US es et eu fa fi fr he hi hr hu id is it ja
    ka ko lt lv mk ms nb nl pl pt_BR pt_PT ro ru sk sl sq sv th tr uk vi
    zh_Hans_CN zh_Hant_TW
""".split()
FIRST = datetime.date(1970, 1, 1)
DAYS = (datetime.date(2070, 1, 1) - FIRST).days
# A field of a pattern, or what it quotes, which is no field.
_FIELD = re.compile(r"'[^']*'|y+|M+|d+|[Ec]+|G+")

# The numbers of a text in their order, "dMy" or without the month "dy", and
# the month that the text names.
Reading = tuple[str, int | None]


class Style:
    """One locale's way to write a date."""

    def __init__(self, locale: Any, pattern: str) -> None:
        from babel.dates import parse_pattern

        self.locale, self.pattern = locale, pattern
        self._write = parse_pattern(pattern).apply
        without = "".join(
            part
            for part in re.split(r"('[^']*'|[Ec]+)", pattern)
            if not re.fullmatch("[Ec]+", part)
        )
        bare = parse_pattern(without.strip(" ,،()\uff08\uff09")).apply
        # What stands around the numbers, by month, since it may have a name.
        self.frames = [
            re.sub(r"\d+", "#", bare(datetime.date(2021, month, 11), locale))
            for month in range(1, 13)
        ]
        # Some names are numbers too: "3월", "tháng 3".
        self.names_month = self.frames[0].count("#") == 2
        self._widths = {
            field[0]: min(len(field), 2)
            for field in _FIELD.findall(pattern)
            if field[0] in "yd" or (field[0] == "M" and not self.names_month)
        }
        if "MMM" in pattern and not self.names_month:
            self._widths["M"] = 1
        self.short_year = self._widths["y"] == 2
        self.order = "".join(self._widths)

    def __call__(self, day: datetime.date) -> str:
        return self._write(day, self.locale)

    def reading(self, month: int) -> Reading:
        return self.order, month if self.names_month else None

    def numbers(self, day: datetime.date) -> list[str]:
        """The numbers of the text, without those of its weekday."""
        year = day.year % 100 if self.short_year else day.year
        values = {"y": year, "M": day.month, "d": day.day}
        return [
            f"{values[field]:0{width}}" for field, width in self._widths.items()
        ]


def make_styles(locales: list[str] | None = None) -> list[Style]:
    """Every distinct pattern of each locale that has day, month and year."""
    from babel import Locale

    styles = []
    for locale in map(Locale.parse, locales or LOCALES):
        found = [*locale.date_formats.values()]
        found += [
            pattern
            for skeleton, pattern in locale.datetime_skeletons.items()
            if {*"yMd"} <= {*skeleton} <= {*"yMdE"}
        ]
        patterns = dict.fromkeys(pattern.pattern for pattern in found)
        styles += [Style(locale, pattern) for pattern in patterns]
    return styles


class Readings:
    """What a text could mean, by all the styles that there are."""

    def __init__(self, styles: list[Style]) -> None:
        self._by_frame: dict[str, set[Reading]] = defaultdict(set)
        for style, month in itertools.product(styles, range(1, 13)):
            frame = style.frames[month - 1]
            self._by_frame[frame].add(style.reading(month))

    def __call__(self, style: Style, day: datetime.date) -> set[datetime.date]:
        """The days that the text of `day` could mean, `day` among them."""
        readings = self._by_frame[style.frames[day.month - 1]]
        if len(readings) == 1:
            return {day}
        numbers = style.numbers(day)
        days = (read(numbers, *reading) for reading in readings)
        return {found for found in days if found and 1970 <= found.year < 2070}


def read(
    numbers: list[str], order: str, month: int | None
) -> datetime.date | None:
    """The day of numbers in this order, or None if it is none."""
    if len(numbers) != len(order):
        return None
    values = dict(zip(order, numbers, strict=True))
    year = int(values["y"])
    if len(values["y"]) == 2:
        year += 1900 if year >= 70 else 2000
    try:
        return datetime.date(year, month or int(values["M"]), int(values["d"]))
    except ValueError:
        return None


def split_days(
    held_out: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray]:
    """Days to learn from, and days that no training text is of."""
    days = rng.permutation(DAYS)
    return days[held_out:], days[:held_out]


def write_dates(
    styles: list[Style],
    readings: Readings,
    days: np.ndarray,
    count: int,
    rng: np.random.Generator,
    *,
    advance: Callable[[int], Any] = lambda count: None,
) -> tuple[list[str], list[str]]:
    """`count` texts of random days in random styles, and the days in ISO 8601.

    `advance` is told now and then how many more there are.
    """
    texts: list[str] = []
    answers: list[str] = []
    for style, day in _pairs(styles, days, rng):
        if len(texts) == count:
            break
        if len(readings(style, day)) > 1:
            continue
        texts.append(style(day))
        answers.append(day.isoformat())
        if len(texts) % 1000 == 0:
            advance(1000)
    advance(count % 1000)
    return texts, answers


def _pairs(
    styles: list[Style], days: np.ndarray, rng: np.random.Generator
) -> Iterator[tuple[Style, datetime.date]]:
    while True:
        drawn = zip(
            rng.integers(0, len(styles), 1000),
            rng.choice(days, 1000),
            strict=True,
        )
        for style, day in drawn:
            yield styles[style], FIRST + datetime.timedelta(int(day))


# ---- Rules to compare with: each knows numbers, and one English


def by_regular_expression(text: str) -> str:
    """Three numbers: the year first if it has four digits, else last."""
    numbers = re.findall(r"\d+", text)[:3]
    orders = ["yMd", "ydM"] if len(numbers[0]) == 4 else ["dMy", "Mdy"]
    days = [read(numbers, order, None) for order in orders]
    return next((day.isoformat() for day in days if day), "")


def by_dateutil(text: str) -> str:
    """What `dateutil` reads, the day before the month but behind a year."""
    from dateutil import parser

    # Told so of "2024-03-07" too, it makes it the 3rd of July.
    first = re.match(r"\D*\d{4}", text) is None
    try:
        day = parser.parse(text, dayfirst=first, fuzzy=True).date()
    except (ValueError, OverflowError):
        return ""
    if day.year >= 2070:  # its century of two digits moves with today
        day = day.replace(year=day.year - 100)
    return day.isoformat()


RULES = {
    "a regular expression": by_regular_expression,
    "dateutil": by_dateutil,
}


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--count", type=int, default=20)
    options.add_argument("--seed", type=int, default=0)
    options = options.parse_args()
    rng = np.random.default_rng(options.seed)
    styles = make_styles()
    for text, answer in zip(
        *write_dates(
            styles, Readings(styles), np.arange(DAYS), options.count, rng
        ),
        strict=True,
    ):
        print(answer, text, sep="\t")


if __name__ == "__main__":
    main()
