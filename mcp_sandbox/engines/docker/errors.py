"""Docker's failures, turned into ours at one place."""

from __future__ import annotations

import errno
import re
import ssl
from contextlib import contextmanager
from typing import TYPE_CHECKING

import docker.errors
import requests.exceptions
import urllib3.exceptions

from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.errors import (
    EngineDenied,
    EngineError,
    EngineUnreachable,
    ImageMissing,
    ImageUnsuitable,
    RuntimeMissing,
    SandboxError,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

FOREIGN = (
    docker.errors.DockerException,
    docker.errors.StreamParseError,
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    OSError,
)
"""Every family of exception that the docker SDK lets through."""


@contextmanager
def translated(address: str) -> Iterator[None]:
    """Raise what the docker SDK raises inside as an `EngineError` that names the engine's address.

    Raises:
        EngineError: The engine failed; the most telling subclass.
    """
    try:
        yield
    except SandboxError:
        raise
    except FOREIGN as error:
        raise translate(error, address) from error


def translate(error: Exception, address: str) -> EngineError:
    """Return the error of ours that says what this one of the SDK's means."""
    if isinstance(error, docker.errors.APIError):
        return _answered(error)
    causes = list(_causes(error))
    # TLS has numbers of its own, and 1 is among them, which would be EPERM.
    numbers = {
        cause.errno for cause in causes if isinstance(cause, OSError) and not isinstance(cause, ssl.SSLError)
    }
    if errno.EACCES in numbers or errno.EPERM in numbers:
        return EngineDenied(f"this user may not open the engine's socket at {address}.")
    if any(isinstance(cause, TimeoutError | requests.exceptions.Timeout) for cause in causes):
        return EngineUnreachable(f"the engine at {address} did not answer in time.")
    return EngineUnreachable(f"nothing answers at {address} ({_last_words(causes)}).")


def _answered(error: docker.errors.APIError) -> EngineError:
    said = _one_line(error.explanation or str(error))
    if isinstance(error, docker.errors.ImageNotFound) or re.search(r"no such image", said, re.IGNORECASE):
        return ImageMissing(f"the engine has no such image ({said}).", next_step=build_command(said))
    if re.search(r"executable file not found|no such file or directory.*python3|python3.*no such file", said):
        return ImageUnsuitable(f"the image has no python3 on its PATH ({said}).")
    if re.search(
        r'unknown or invalid runtime|unknown runtime|runtime "?[\w.-]+"? not found', said, re.IGNORECASE
    ):
        return RuntimeMissing(
            f"the engine does not know the runtime ({said}).",
            next_step="Install gVisor and register it with the engine (`runsc install`), or set another "
            "`runtime`.",
        )
    if re.search(
        r"bind source path does not exist|mounts denied|failed to mount local volume", said, re.IGNORECASE
    ):
        return EngineError(
            f"the engine cannot mount a folder of this machine ({said}).",
            next_step='Share it with the engine\'s virtual machine, or set workspace_transfer = "copy".',
        )
    return EngineError(f"the engine refused: {said}.")


def build_command(image: str) -> str:
    """Return the sentence that says how to get this image."""
    if "mcp-sandbox/minimal" in image:
        return "Run `mcp-sandbox image build --minimal` once."
    if "mcp-sandbox/" in image:
        return "Run `mcp-sandbox image build` once."
    return "Build or pull it on that engine, or set another `image`."


def runtime_advice(runtime: str, product: str) -> str:
    """Return the sentence that says how an engine, Docker or Podman, comes to have this runtime."""
    if product == "Podman":
        return (
            f"Podman's Docker API starts all under its default: make {runtime} that (`runtime` under [engine] in "
            "containers.conf), or set another `runtime`."
        )
    if runtime == GVISOR:
        return (
            "Install gVisor and register it with the engine (`sudo runsc install`, then restart Docker), or set "
            "another `runtime`."
        )
    return "Register it with the engine, or set another `runtime`."


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    # requests wraps urllib3 wraps http.client wraps OSError, partly by cause, partly by argument.
    seen: set[int] = set()
    pending = [error]
    while pending:
        cause = pending.pop()
        if cause is None or id(cause) in seen:
            continue
        seen.add(id(cause))
        yield cause
        pending += [cause.__cause__, cause.__context__]
        pending += [argument for argument in cause.args if isinstance(argument, BaseException)]
        reason = getattr(cause, "reason", None)
        pending.append(reason if isinstance(reason, BaseException) else None)


def _last_words(causes: list[BaseException]) -> str:
    for cause in causes:
        if isinstance(cause, requests.exceptions.RequestException):
            continue
        if isinstance(cause, OSError) and cause.strerror:
            return cause.strerror.lower()
    return type(causes[0]).__name__


def _one_line(text: object) -> str:
    return " ".join(str(text).split())[:300].rstrip(".")
