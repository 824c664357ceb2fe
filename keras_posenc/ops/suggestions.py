"""Suggestions for misspelt names."""

import difflib
from collections.abc import Collection


def did_you_mean(name: str, known: Collection[str]) -> str:
    """Returns a question that names what a name may mean, or ""."""
    return "".join(
        f". Did you mean `{each}`?" for each in misspelt(name, known)
    )


def misspelt(name: str, known: Collection[str]) -> list[str]:
    """Returns the one name that `name` is a misspelling of, in a list."""

    def letters(name: str) -> str:
        return name.replace("_", "").lower()

    # `training.NoamSchedule` is compared as `NoamSchedule`.
    by_letters = {letters(each.rpartition(".")[2]): each for each in known}
    near = difflib.get_close_matches(
        letters(name), by_letters, n=1, cutoff=0.85
    )
    return [by_letters[each] for each in near]


def no_such_name(
    module: str, name: str, *, known: Collection[str]
) -> AttributeError:
    """Returns the error for a public name that a module does not have."""
    # Tools look up names that begin with an underscore.
    advice = "" if name.startswith("_") else did_you_mean(name, known)
    return AttributeError(
        f"module {module!r} has no attribute {name!r}{advice}"
    )
