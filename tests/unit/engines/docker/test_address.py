"""Which engine is spoken to: what was named, and nothing else in its place; else the first that listens."""

from __future__ import annotations

import hashlib
import json
import socket
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from mcp_sandbox.engines.docker.address import Address, find_engine, usual_sockets, variables_of
from mcp_sandbox.errors import ConfigError, EngineDenied, EngineUnreachable
from tests.privileges import unprivileged

if TYPE_CHECKING:
    from collections.abc import Iterator

REMOTE = "tcp://engine.example:2376"


class Machine:
    """A home and a runtime folder with sockets that somebody listens on, and that nobody does."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.runtime = root / "run"
        self.environ = {"XDG_RUNTIME_DIR": str(self.runtime)}
        self.sockets: list[socket.socket] = []

    def listen(self, path: Path) -> Path:
        path.parent.mkdir(parents=True, exist_ok=True)
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(str(path))
        listener.listen()
        self.sockets.append(listener)
        return path

    def abandon(self, path: Path) -> Path:
        """Leave a socket that nobody listens on, as an engine does that was killed."""
        self.listen(path)
        self.sockets.pop().close()
        return path

    def context(self, name: str, host: str) -> None:
        meta = self.home / ".docker/contexts/meta" / hashlib.sha256(name.encode()).hexdigest()
        meta.mkdir(parents=True)
        described = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host}}}
        (meta / "meta.json").write_text(json.dumps(described))

    def use_context(self, name: str) -> None:
        config = self.home / ".docker/config.json"
        config.parent.mkdir(parents=True, exist_ok=True)
        config.write_text(json.dumps({"currentContext": name}))

    def find(self, configured: str = "", **environ: str) -> Address:
        return find_engine(configured, self.environ | environ, self.home)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder whose path is short, as a socket's must be."""
    with tempfile.TemporaryDirectory() as path:
        yield Path(path)


@pytest.fixture
def machine(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Machine]:
    machine = Machine(folder)
    # The SDK looks for contexts where the process's own environment says.
    monkeypatch.setenv("HOME", str(machine.home))
    for name in ("DOCKER_CONFIG", "DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    yield machine
    for listener in machine.sockets:
        listener.close()


@pytest.fixture
def no_system_engine(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """Take the sockets away that the machine itself may have: all others are under the test's own folders."""

    def own_sockets(environ: dict[str, str], home: Path) -> Iterator[tuple[str, Path]]:
        return ((name, path) for name, path in usual_sockets(environ, home) if path.is_relative_to(folder))

    monkeypatch.setattr("mcp_sandbox.engines.docker.address.usual_sockets", own_sockets)


def test_the_configuration_comes_before_the_environment(machine: Machine) -> None:
    found = machine.find("unix:///configured.sock", DOCKER_HOST="unix:///environment.sock")
    assert found == Address("unix:///configured.sock", "[engine] host")


def test_docker_host_comes_before_the_context(machine: Machine) -> None:
    machine.context("desk", "unix:///context.sock")
    machine.use_context("desk")
    found = machine.find(DOCKER_HOST="unix:///environment.sock", DOCKER_CONTEXT="desk")
    assert found == Address("unix:///environment.sock", "DOCKER_HOST")


def test_docker_context_comes_before_the_context_in_use(machine: Machine) -> None:
    machine.context("desk", "unix:///desk.sock")
    machine.context("cloud", "tcp://cloud.example:2376")
    machine.use_context("desk")
    found = machine.find(DOCKER_CONTEXT="cloud")
    assert (found.url, found.source) == ("tcp://cloud.example:2376", "docker context cloud")
    assert not found.local


def test_the_context_in_use_comes_before_sockets_that_listen(machine: Machine) -> None:
    machine.listen(machine.home / ".docker/run/docker.sock")
    machine.context("desk", "unix:///desk.sock")
    machine.use_context("desk")
    assert machine.find() == Address("unix:///desk.sock", "docker context desk")


@pytest.mark.usefixtures("no_system_engine")
def test_the_default_context_leaves_it_to_the_sockets(machine: Machine) -> None:
    path = machine.listen(machine.home / ".docker/run/docker.sock")
    machine.use_context("default")
    assert machine.find().url == f"unix://{path}"


def test_a_context_that_is_not_there_is_never_replaced_by_another_engine(machine: Machine) -> None:
    machine.listen(machine.home / ".docker/run/docker.sock")
    machine.use_context("gone")
    with pytest.raises(ConfigError, match="no docker context gone"):
        machine.find()
    with pytest.raises(ConfigError, match="no docker context gone-too"):
        machine.find(DOCKER_CONTEXT="gone-too")


def test_a_broken_context_is_told(machine: Machine) -> None:
    machine.listen(machine.home / ".docker/run/docker.sock")
    machine.context("desk", "unix:///desk.sock")
    machine.use_context("desk")
    (meta,) = machine.home.glob(".docker/contexts/meta/*/meta.json")
    for broken in ("{", "{}", "[]"):
        meta.write_text(broken)
        with pytest.raises(ConfigError, match="docker context desk"):
            machine.find()


@pytest.mark.parametrize(
    "url", ["ssh://me@host", "npipe:////./pipe/docker_engine", "host:2375", "/var/run/x.sock"]
)
def test_an_address_of_another_kind_is_refused_with_what_to_do(machine: Machine, url: str) -> None:
    with pytest.raises(ConfigError) as caught:
        machine.find(url)
    assert url in caught.value.message
    assert "unix://" in caught.value.next_step


def test_tls_without_certificates_is_told_not_dropped(machine: Machine, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="DOCKER_CERT_PATH"):
        machine.find(DOCKER_HOST=REMOTE, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=str(tmp_path))


def test_certificates_of_the_environment_are_used(machine: Machine, tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    found = machine.find(DOCKER_HOST=REMOTE, DOCKER_TLS_VERIFY="1", DOCKER_CERT_PATH=str(tmp_path))
    assert found.tls.ca_cert == str(tmp_path / "ca.pem")
    assert str(tmp_path) not in repr(found)


@pytest.mark.usefixtures("no_system_engine")
def test_sockets_are_tried_in_their_order_and_dead_ones_passed_over(machine: Machine) -> None:
    usual = [path for _, path in usual_sockets(machine.environ, machine.home)]
    own = [path for path in usual if path.is_relative_to(machine.home.parent)]
    assert len(own) == len(usual) - 2
    for path in own:
        machine.abandon(path)
    # From the last to the first: each one that starts to listen comes before all that listen already.
    for path in reversed(own):
        path.unlink()
        machine.listen(path)
        assert machine.find().url == f"unix://{path}"


def test_the_engine_of_the_system_comes_first(machine: Machine) -> None:
    assert next(usual_sockets(machine.environ, machine.home)) == ("Docker", Path("/var/run/docker.sock"))


@pytest.mark.usefixtures("no_system_engine")
def test_without_a_runtime_folder_the_home_is_searched(machine: Machine) -> None:
    machine.listen(machine.runtime / "docker.sock")
    path = machine.listen(machine.home / ".colima/default/docker.sock")
    machine.environ.clear()
    assert machine.find() == Address(f"unix://{path}", "Colima")


@pytest.mark.usefixtures("no_system_engine")
def test_no_engine_at_all_names_every_place_that_was_searched(machine: Machine) -> None:
    with pytest.raises(EngineUnreachable) as caught:
        machine.find()
    for _, path in usual_sockets(machine.environ, machine.home):
        if path.is_relative_to(machine.home.parent):
            assert str(path) in caught.value.message
    assert "Start Docker" in caught.value.next_step


@pytest.mark.usefixtures("no_system_engine")
class TestSocketsOfOthers:
    @pytest.fixture(autouse=True)
    def somebody_elses(self, machine: Machine) -> None:
        self.denied = machine.listen(machine.home / ".docker/run/docker.sock")
        self.denied.chmod(0)
        machine.home.parent.chmod(0o755)

    def test_a_socket_that_this_user_may_not_open_is_named(self, machine: Machine) -> None:
        with unprivileged(), pytest.raises(EngineDenied) as caught:
            machine.find()
        assert str(self.denied) in caught.value.message
        assert "group" in caught.value.next_step

    def test_one_that_may_be_opened_is_preferred(self, machine: Machine) -> None:
        open_to_all = machine.listen(machine.home / ".rd/docker.sock")
        open_to_all.chmod(0o666)
        with unprivileged():
            assert machine.find() == Address(f"unix://{open_to_all}", "Rancher Desktop")


# What leads a server there that a client starts


@pytest.mark.usefixtures("no_system_engine")
def test_a_server_with_only_its_variables_finds_the_engine_that_a_shell_found(machine: Machine) -> None:
    machine.listen(machine.runtime / "docker.sock")
    machine.context("colima", REMOTE)
    machine.use_context("default")
    for shell, source in (
        ({}, "rootless Docker"),
        ({"DOCKER_HOST": REMOTE}, "DOCKER_HOST"),
        ({"DOCKER_CONTEXT": "colima"}, "docker context colima"),
    ):
        found = machine.find(**shell)
        assert found.source == source
        given = variables_of("", machine.environ | shell, machine.home)
        assert find_engine("", given, machine.home).url == found.url


def test_certificates_come_along_with_the_address(machine: Machine, tmp_path: Path) -> None:
    for name in ("ca.pem", "cert.pem", "key.pem"):
        (tmp_path / name).touch()
    shell = {"DOCKER_HOST": REMOTE, "DOCKER_TLS_VERIFY": "1", "DOCKER_CERT_PATH": str(tmp_path)}
    assert variables_of("", {**shell, "DOCKER_CONTEXT": "other", "EDITOR": "vi"}, machine.home) == shell


def test_a_context_is_named_and_not_its_address_which_would_lose_its_certificates(machine: Machine) -> None:
    machine.context("colima", REMOTE)
    machine.use_context("colima")
    config = str(machine.home / ".docker")
    assert variables_of("", {"DOCKER_CONFIG": config}, machine.home) == {
        "DOCKER_CONTEXT": "colima",
        "DOCKER_CONFIG": config,
    }


def test_an_engine_that_the_configuration_names_needs_no_variable(machine: Machine) -> None:
    assert variables_of(REMOTE, {"DOCKER_HOST": "unix:///other"}, machine.home) == {}


@pytest.mark.usefixtures("no_system_engine")
def test_no_engine_is_told(machine: Machine) -> None:
    with pytest.raises(EngineUnreachable):
        variables_of("", machine.environ, machine.home)
