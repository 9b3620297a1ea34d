"""The token for `serve --http`: from a file that nobody else may read, or from the environment."""

from __future__ import annotations

import os
import re
import stat
from typing import TYPE_CHECKING

from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

TOKEN_VARIABLE = "MCP_SANDBOX_HTTP_TOKEN"  # noqa: S105  # the name of the variable
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]{32,512}=*")
_MAKE_ONE = (
    "Make one with `openssl rand -hex 32`, in a file that only you can read (`chmod 600`) and that --token-file "
    f"names, or in the variable {TOKEN_VARIABLE}."
)


def read_token(file: Path | None, environ: Mapping[str, str]) -> str:
    """Return the token that clients must send, from a file or from the environment.

    Raises:
        ConfigError: There is none, it is none, or others could have read it.
    """
    said = environ.get(TOKEN_VARIABLE)
    if file is not None and said is not None:
        raise ConfigError(f"--token-file and {TOKEN_VARIABLE} both name a token.", next_step="Take one away.")
    if file is not None:
        source, token = visible(str(file), limit=4096), _read(file)
    elif said is not None:
        source, token = TOKEN_VARIABLE, said
    else:
        raise ConfigError("serving over HTTP takes a token, and there is none.", next_step=_MAKE_ONE)
    if not _TOKEN.fullmatch(token.strip()):
        raise ConfigError(
            f"{source} holds no token: 32 to 512 letters, digits and ._~+/- in one line.", next_step=_MAKE_ONE
        )
    return token.strip()


def _read(file: Path) -> str:
    shown = visible(str(file), limit=4096)
    try:
        descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(descriptor, encoding="ascii", errors="replace") as opened:
            mode = os.fstat(descriptor).st_mode
            text = opened.read(1024) if stat.S_ISREG(mode) else ""
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise ConfigError(f"{shown} cannot be read: {reason.lower()}.", next_step=_MAKE_ONE) from None
    if stat.S_ISREG(mode) and mode & (stat.S_IRWXG | stat.S_IRWXO):
        raise ConfigError(
            f"{shown} is open to other users.",
            next_step=f"Make a new token: others may have this one. {_MAKE_ONE}",
        )
    return text
