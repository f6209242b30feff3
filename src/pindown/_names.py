"""Words for messages: names in quotes, the name that was probably meant, lists of names, numbers."""

from collections.abc import Sequence

MANY = 8  # names that are listed in full where none is near


def printable(text: object, limit: int = 60) -> str:
    r"""Return text that is safe to print: control characters are escaped, and long text is cut.

    >>> printable("size\x1b[31m"), printable("a" * 100, limit=5)
    ('size\\x1b[31m', 'aaaa…')
    """
    safe = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in str(text))
    return safe if len(safe) <= limit else f"{safe[: limit - 1]}…"


def quoted(name: str, limit: int = 60) -> str:
    """Return a name in quotes that is safe to print: control characters are escaped, and a long name is cut."""
    return repr(name if len(name) <= limit else f"{name[: limit - 1]}…")


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint that ends a sentence: the name that was probably meant, or those there are.

    >>> nearest("bacth", ["batch", "label"])
    "did you mean 'batch'?"
    >>> nearest("colour", ["batch", "label"])
    'there are batch, label.'
    """
    import difflib

    same = [known for known in names if known.casefold() == name.casefold()]
    close = same or difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    if close:
        return f"did you mean '{printable(close[0])}'?"
    return f"there are {listed(names)}." if names else "there are none."


def listed(names: Sequence[str], most: int = MANY) -> str:
    """Return names separated by commas; of many, the first ones and the last.

    >>> listed([f"x{i}" for i in range(40)], most=3)
    'x0, x1, …, x39 (40)'
    """
    if len(names) <= most:
        return ", ".join(map(printable, names))
    return f"{', '.join(map(printable, names[: most - 1]))}, …, {printable(names[-1])} ({len(names)})"


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural unless it is one.

    >>> counted(1, "dimension"), counted(2, "class"), counted(1_000, "row")
    ('1 dimension', '2 classes', '1,000 rows')
    """
    plural = noun if number == 1 else f"{noun}es" if noun.endswith("s") else f"{noun}s"
    return f"{number:,} {plural}"


def printed(value: float, digits: int = 3) -> str:
    """Return a score with this number of digits; numbers below 1 are not rounded up to 1, and -0.000 becomes 0.000.

    >>> printed(0.9981), printed(0.9997), printed(1.0), printed(-0.0004), printed(-0.12, 2)
    ('0.998', '0.999', '1.000', '0.000', '-0.12')
    """
    size = abs(value) if abs(value) >= 1 else min(abs(value), 1 - 10**-digits)
    text = f"{size:.{digits}f}"
    return f"-{text}" if value < 0 and float(text) else text
