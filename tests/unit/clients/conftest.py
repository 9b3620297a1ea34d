"""A home folder with the files that clients keep in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from mcp_sandbox.clients.launch import Launch
from mcp_sandbox.clients.table import CLIENTS, Client

CONFIGS = Path(__file__).parent / "configs"
LAUNCH = Launch(
    "/home/ada/.local/bin/mcp-sandbox",
    ("serve", "--workspace", "reports"),
    {"DOCKER_HOST": "unix:///run/user/1000/docker.sock"},
)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(params=list(CLIENTS))
def client(request: pytest.FixtureRequest) -> Client:
    """Every client that is known."""
    return CLIENTS[request.param]


def existing(client: Client) -> bytes:
    """Return what somebody's file of a client holds: other servers, comments where the client reads them."""
    return next(CONFIGS.glob(f"{client.name}.*")).read_bytes()


def lay(client: Client, home: Path, content: bytes) -> Path:
    """Put a client's file where the client has it."""
    path = client.files(home, {})[0]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path
