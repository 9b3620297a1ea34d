"""Text of unknown origin, made safe to print."""


def visible(text: str, *, limit: int | None = None, lines: bool = False) -> str:
    """Return text with what does not print escaped, except line ends and tabs with `lines`, cut at `limit`.

    Else control characters could clear the screen or set the clipboard, direction marks turn around the words that
    are read, and a lone surrogate end the process that prints it.
    """
    if limit is not None and len(text) > limit:
        text = text[: limit - 1] + "…"
    kept = {"\n", "\t"} if lines else set()
    return "".join(
        letter if letter.isprintable() or letter in kept else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
