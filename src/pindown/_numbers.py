"""How scores are written: the same digits in text, on pages and in messages."""


def printed(value: float, digits: int = 3) -> str:
    """Return a score with so many digits; what is below 1 is not rounded up to it, and there is no -0.000.

    Examples
    --------
    >>> printed(0.9981), printed(0.9997), printed(1.0), printed(-0.0004), printed(-0.12, 2)
    ('0.998', '0.999', '1.000', '0.000', '-0.12')
    """
    size = abs(value) if abs(value) >= 1 else min(abs(value), 1 - 10**-digits)
    text = f"{size:.{digits}f}"
    return f"-{text}" if value < 0 and float(text) else text
