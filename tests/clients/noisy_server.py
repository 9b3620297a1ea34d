"""The server, with code in its process that prints where only protocol may stand."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

from mcp_sandbox.cli import main
from mcp_sandbox.executor import Executor

_execute = Executor.execute


async def _execute_noisily(self: Executor, *arguments: Any, **keywords: Any) -> Any:
    print("stray print")
    os.write(1, b"stray write\n")
    subprocess.run(["/bin/echo", "stray child"], check=True)  # noqa: ASYNC221  # it blocks for a moment
    sys.__stdout__.write("stray, and still in a buffer when the process ends")  # type: ignore[union-attr]
    return await _execute(self, *arguments, **keywords)


if __name__ == "__main__":  # only there: whoever imports this for its path must not become noisy
    Executor.execute = _execute_noisily  # type: ignore[method-assign]
    main()
