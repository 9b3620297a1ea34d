"""What a path inside a sandbox may look like, on the way in and on the way out."""

MAX_PATH_BYTES = 1024
MAX_NAME_BYTES = 255


def is_plain_path(path: str) -> bool:
    """Tell whether a path stays below the folder it starts from, on any system, and can be shown."""
    encoded = path.encode("utf-8", "replace")
    return (
        path.isprintable()
        and "\\" not in path
        and len(encoded) <= MAX_PATH_BYTES
        and all(
            part not in (b"", b".", b"..") and len(part) <= MAX_NAME_BYTES for part in encoded.split(b"/")
        )
    )
