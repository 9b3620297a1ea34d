"""Find the configuration file, the workspace and its folder: each time the first that there is.

File: `--config`, MCP_SANDBOX_CONFIG, the user's configuration folder, none (all is built in).
Workspace: `--workspace`, MCP_SANDBOX_WORKSPACE, CLAUDE_PROJECT_DIR, the current folder where it is configured
or carries an `mcp-sandbox.toml`, none (`[defaults]` without a folder).

What somebody asked for and cannot have is an error. What merely surrounds the server (CLAUDE_PROJECT_DIR, the
current folder) is passed over where it is the root or the home folder, for clients start servers there.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from mcp_sandbox.config.files import (
    FOLDER_FILE,
    UserFile,
    no_user_file,
    read_folder_file,
    read_user_file,
    tighten,
)
from mcp_sandbox.config.folders import engine_sockets, holds, usable_folder
from mcp_sandbox.config.layers import resolve, source
from mcp_sandbox.config.places import Places
from mcp_sandbox.config.policy import Configuration, Policy, SecretUse
from mcp_sandbox.config.problems import Problem, nearest, refusal
from mcp_sandbox.config.settings import NO_FOLDER, DependencySettings, EgressSettings, Settings
from mcp_sandbox.config.trust import Trust
from mcp_sandbox.errors import ConfigError
from mcp_sandbox.visible import visible

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp_sandbox.config.layers import Layer, Resolved
    from mcp_sandbox.config.settings import AuditSettings, MountSettings, SecretSettings


@dataclass(frozen=True)
class Invocation:
    """How a command was started: arguments, environment, folder, user."""

    config_file: Path | None
    workspace: str | None
    environ: Mapping[str, str]
    cwd: Path
    places: Places


@dataclass(frozen=True)
class Found:
    """What the user's own configuration says of one workspace, before its folder has spoken."""

    file: Path | None
    user_file: UserFile
    audit: AuditSettings
    entry: str | None
    """The workspace's entry in the file; None where it has none."""
    name: str
    folder: Path | None
    mounts: tuple[MountSettings, ...]
    egress: EgressSettings
    dependencies: DependencySettings
    secrets: Mapping[str, SecretSettings]
    layers: tuple[Layer, ...]
    sources: Mapping[str, str]


def load_configuration(
    *, config_file: Path | None, workspace: str | None, environ: Mapping[str, str], cwd: Path
) -> Configuration:
    """Return the configuration for a server that was started with these arguments, in this folder.

    Raises:
        ConfigError: It cannot be used: file, line and key are named.
    """
    places = Places.of_user()
    found = find(Invocation(config_file, workspace, environ, cwd, places))
    resolved = own_policy(found)
    folder_file = read_folder_file(found.folder) if found.folder else None
    if folder_file is not None:
        resolved = tighten(found.layers, folder_file, trusted=Trust(places.state).covers(folder_file))
    return _configuration(found, resolved)


def own_policy(found: Found) -> Resolved:
    """Return what the user's own configuration allows, whatever the folder says.

    Raises:
        ConfigError: It contradicts itself, or is looser than its profile.
    """
    resolved = resolve(found.layers)
    if resolved.problems:
        raise refusal(found.user_file.document.file, resolved.problems)
    return resolved


def _configuration(found: Found, resolved: Resolved) -> Configuration:
    policy = Policy(
        **resolved.values,
        workspace=found.name,
        path=None if found.folder is None else str(found.folder),
        mounts=found.mounts,
        egress=found.egress,
        dependencies=found.dependencies,
        secrets=tuple(sorted(found.secrets)),
        secret_use=tuple(
            use
            for name, secret in sorted(found.secrets.items())
            if (use := SecretUse(name=name, hosts=secret.hosts, tools=secret.tools)) != SecretUse(name=name)
        ),
    )
    if policy.profile == "untrusted" and found.audit.unsafe_run_unrecorded:
        document = found.user_file.document
        words = f"`audit.unsafe_run_unrecorded` cannot be true: workspace `{found.name}` is untrusted"
        raise refusal(document.file, [Problem(words, document.line("audit", "unsafe_run_unrecorded"))])
    return Configuration(
        file=found.file,
        engine=found.user_file.settings.engine,
        server=found.user_file.settings.server,
        audit=found.audit,
        policy=policy,
        secrets=found.secrets,
        sources={**found.sources, **resolved.sources},
    )


def find(invocation: Invocation) -> Found:
    """Return what the user's own configuration says of the workspace that is meant.

    Raises:
        ConfigError: The file cannot be used, there is no such workspace, or its folder may not be shown.
    """
    file, user_file = _find_file(invocation)
    choice = _choose(user_file, invocation)
    audit = _audit(user_file, invocation.places)
    folder, folder_source = _folder(user_file, choice, audit, invocation)
    mounts = _mounts(user_file, choice.entry, _keep_out(user_file, audit, invocation), invocation.places)
    return Found(
        file=file,
        user_file=user_file,
        audit=audit,
        entry=choice.entry,
        name=choice.entry or (_name_of(folder, user_file) if folder else NO_FOLDER),
        folder=folder,
        mounts=mounts,
        egress=_egress(user_file, choice.entry, invocation.places),
        dependencies=_dependencies(user_file, choice.entry, folder, invocation.places),
        secrets=_secrets(user_file, choice.entry, invocation.places),
        layers=user_file.layers(choice.entry),
        sources={
            **_sources(user_file),
            "workspace": choice.source,
            "path": folder_source,
            "mounts": choice.source,
            "egress": _table_source(user_file, choice, "egress"),
            "dependencies": _table_source(user_file, choice, "dependencies"),
            "secrets": _table_source(user_file, choice, "secrets"),
            "secret_use": _table_source(user_file, choice, "secrets"),
        },
    )


def check_file(invocation: Invocation) -> Path | None:
    """Check every workspace of a configuration file, and return the file; None where there is none.

    Raises:
        ConfigError: It cannot be used, or a workspace in it cannot: all of what is wrong is named.
    """
    file, user_file = _find_file(invocation)
    document = user_file.document
    keep_out = _keep_out(user_file, _audit(user_file, invocation.places), invocation)
    problems = resolve(user_file.layers(None)).problems
    for name in user_file.settings.workspaces:
        problems += resolve(user_file.layers(name)).problems
        try:
            _entry_folder(user_file, name, invocation.places, keep_out)
        except ValueError as error:
            problems.append(_folder_problem(user_file, name, error))
        problems += _more_folders(user_file, name, keep_out, invocation.places)[1]
        problems += _wrong_dependencies(user_file, name)
    if problems:
        raise refusal(document.file, problems)
    return file


# The file


def _find_file(invocation: Invocation) -> tuple[Path | None, UserFile]:
    said = invocation.environ.get("MCP_SANDBOX_CONFIG")
    if invocation.config_file is not None:
        origin, path = "--config", invocation.config_file
    elif said:
        origin, path = "MCP_SANDBOX_CONFIG", Path(said)
    else:
        origin, path = None, invocation.places.config_file
    path = invocation.cwd / invocation.places.expand(str(path))
    try:
        return path, read_user_file(path)
    except FileNotFoundError:
        if origin is None:
            return None, no_user_file()
        raise ConfigError(
            f"{origin}: {visible(str(path), limit=4096)} does not exist.", next_step="Name a file that does."
        ) from None


def _audit(user_file: UserFile, places: Places) -> AuditSettings:
    audit = user_file.settings.audit
    return audit.model_copy(update={"path": str(places.expand(audit.path) if audit.path else places.state)})


def _sources(user_file: UserFile) -> dict[str, str]:
    """Return where each key outside of the policy was said."""
    tables: dict[str, Settings] = {
        "engine": user_file.settings.engine,
        "server": user_file.settings.server,
        "audit": user_file.settings.audit,
    }
    return {
        f"{table}.{key}": source(user_file.document, table, key)
        if key in settings.model_fields_set
        else "built in"
        for table, settings in tables.items()
        for key in type(settings).model_fields
    }


# The workspace


@dataclass(frozen=True)
class _Choice:
    """The workspace that is meant: an entry of the file, or a folder that has none, or neither."""

    source: str
    entry: str | None = None
    folder: Path | None = None


def _choose(user_file: UserFile, invocation: Invocation) -> _Choice:
    if invocation.workspace is not None:
        return _asked_for(invocation.workspace, "--workspace", user_file, invocation)
    if said := invocation.environ.get("MCP_SANDBOX_WORKSPACE"):
        return _asked_for(said, "MCP_SANDBOX_WORKSPACE", user_file, invocation)
    home = invocation.places.home
    if said := invocation.environ.get("CLAUDE_PROJECT_DIR"):
        project = invocation.cwd / said
        if (entry := _entry_around(project, user_file, invocation.places)) is not None:
            return _Choice("CLAUDE_PROJECT_DIR", entry=entry)
        if not _is_root_or_home(project, home):
            return _Choice("CLAUDE_PROJECT_DIR", folder=project)
    cwd = invocation.cwd
    if (entry := _entry_around(cwd, user_file, invocation.places)) is not None:
        return _Choice("current folder", entry=entry)
    if not _is_root_or_home(cwd, home) and _carries_file(cwd):
        return _Choice("current folder", folder=cwd)
    return _Choice("built in")


def _asked_for(asked: str, origin: str, user_file: UserFile, invocation: Invocation) -> _Choice:
    names = user_file.settings.workspaces
    if asked in names:
        return _Choice(origin, entry=asked)
    if asked == NO_FOLDER:
        return _Choice(origin)
    if "/" not in asked and not asked.startswith((".", "~")):
        raise _no_such_workspace(asked, origin, names, invocation.cwd)
    folder = invocation.cwd / invocation.places.expand(asked)
    entry = _entry_around(folder, user_file, invocation.places, itself=True)
    return _Choice(origin, entry=entry) if entry is not None else _Choice(origin, folder=folder)


def _no_such_workspace(asked: str, origin: str, names: Mapping[str, object], cwd: Path) -> ConfigError:
    known = ", ".join(sorted(names)[:10]) or "none"
    local = f"./{asked}" if asked.isprintable() and asked and (cwd / asked).is_dir() else "/path or ./path"
    return ConfigError(
        f"{origin}: there is no workspace `{visible(asked, limit=64)}`{nearest(asked, names) or '.'}",
        next_step=f"Configured workspaces: {known}. Name a folder as {local}.",
    )


def _entry_around(folder: Path, user_file: UserFile, places: Places, *, itself: bool = False) -> str | None:
    """Return the entry whose folder this is, or lies in: the innermost one.

    Raises:
        ConfigError: Several entries have that same folder.
    """
    paths = {
        name: places.expand(entry.path) for name, entry in user_file.settings.workspaces.items() if entry.path
    }
    around = [
        name for name, path in paths.items() if holds(path, folder) and (not itself or holds(folder, path))
    ]
    innermost = [name for name in around if all(holds(paths[other], paths[name]) for other in around)]
    if len(innermost) > 1:
        several = " and ".join(f"`{name}`" for name in sorted(innermost))
        raise ConfigError(
            f"{visible(str(folder), limit=4096)} is the folder of the workspaces {several}.",
            next_step="Say which with --workspace NAME.",
        )
    return innermost[0] if innermost else None


def _is_root_or_home(folder: Path, home: Path) -> bool:
    return holds(folder, Path("/")) or (holds(folder, home) and holds(home, folder))


def _carries_file(folder: Path) -> bool:
    try:
        (folder / FOLDER_FILE).lstat()
    except (OSError, ValueError):
        return False
    return True


# The folder


def _folder(
    user_file: UserFile, choice: _Choice, audit: AuditSettings, invocation: Invocation
) -> tuple[Path | None, str]:
    """Return the folder that programs will see, and where it was said."""
    home = invocation.places.home
    keep_out = _keep_out(user_file, audit, invocation)
    if choice.entry is None and choice.folder is None:
        return None, choice.source
    try:
        if choice.entry is not None:
            return _entry_folder(user_file, choice.entry, invocation.places, keep_out)
        return usable_folder(str(choice.folder), home=home, keep_out=keep_out), choice.source
    except ValueError as error:
        if choice.entry is not None:
            problem = _folder_problem(user_file, choice.entry, error)
            raise refusal(user_file.document.file, [problem]) from None
        folder = visible(str(choice.folder), limit=4096)
        raise ConfigError(f"{choice.source}: {folder} {error}.", next_step="Name another folder.") from None


def _keep_out(user_file: UserFile, audit: AuditSettings, invocation: Invocation) -> dict[Path, str]:
    """Return what no program may see, and what to call it."""
    host = user_file.settings.engine.host
    sockets = engine_sockets(host, home=invocation.places.home, environ=invocation.environ)
    agent = invocation.environ.get("SSH_AUTH_SOCK")
    return {
        **dict.fromkeys(sockets, "a socket that commands an engine"),
        **({Path(agent): "the socket of your SSH agent"} if agent else {}),
        Path(audit.path): "the record of runs",
        invocation.places.state: "this program's own state",
    }


def _entry_folder(
    user_file: UserFile, entry: str, places: Places, keep_out: Mapping[Path, str]
) -> tuple[Path | None, str]:
    """Return an entry's folder, and where it is written.

    Raises:
        ValueError: It may not be shown, in words that follow the path.
    """
    path = user_file.settings.workspaces[entry].path
    if not path:
        return None, "built in"
    folder = usable_folder(str(places.expand(path)), home=places.home, keep_out=keep_out)
    return folder, source(user_file.document, "workspaces", entry, "path")


def _egress(user_file: UserFile, entry: str | None, places: Places) -> EgressSettings:
    """Return what an entry's programs may reach, files by their absolute paths."""
    egress = user_file.settings.workspaces[entry].egress if entry else EgressSettings()
    bundle = egress.ca_bundle and str(places.expand(egress.ca_bundle))
    return egress.model_copy(update={"ca_bundle": bundle})


def _dependencies(
    user_file: UserFile, entry: str | None, folder: Path | None, places: Places
) -> DependencySettings:
    """Return an entry's packages, the lock by its absolute path.

    Raises:
        ConfigError: Its keys cannot be true together.
    """
    if entry is None:
        return DependencySettings()
    if problems := _wrong_dependencies(user_file, entry):
        raise refusal(user_file.document.file, problems)
    dependencies = user_file.settings.workspaces[entry].dependencies
    if not dependencies.lock:
        return dependencies
    lock = (folder or Path("/")) / places.expand(dependencies.lock)
    return dependencies.model_copy(update={"lock": str(lock)})


def _wrong_dependencies(user_file: UserFile, entry: str) -> list[Problem]:
    settings = user_file.settings.workspaces[entry]
    dependencies = settings.dependencies
    problems: list[tuple[str, str]] = []
    if dependencies.lock and not dependencies.lock.startswith(("/", "~/")) and not settings.path:
        problems.append(
            ("lock", "must be an absolute path, or one that starts with ~/: the workspace has no folder")
        )
    if dependencies.inline == "allow" and not dependencies.inline_names:
        problems.append(
            ("inline", 'needs `inline_names`: the packages that a program may name, or ["*"] for any')
        )
    return [
        Problem(
            f"`workspaces.{entry}.dependencies.{key}` {words}",
            user_file.document.line("workspaces", entry, "dependencies", key),
        )
        for key, words in problems
    ]


def _secrets(user_file: UserFile, entry: str | None, places: Places) -> Mapping[str, SecretSettings]:
    """Return where an entry's secrets come from, files by their absolute paths."""
    secrets = user_file.settings.workspaces[entry].secrets if entry else {}
    return {
        name: secret.model_copy(update={"file": str(places.expand(secret.file))}) if secret.file else secret
        for name, secret in secrets.items()
    }


def _table_source(user_file: UserFile, choice: _Choice, table: str) -> str:
    if choice.entry and table in user_file.settings.workspaces[choice.entry].model_fields_set:
        return source(user_file.document, "workspaces", choice.entry, table)
    return "built in"


def _mounts(
    user_file: UserFile, entry: str | None, keep_out: Mapping[Path, str], places: Places
) -> tuple[MountSettings, ...]:
    """Return an entry's further folders, each as it really is.

    Raises:
        ConfigError: One may not be shown.
    """
    mounts, problems = _more_folders(user_file, entry, keep_out, places) if entry else ((), [])
    if problems:
        raise refusal(user_file.document.file, problems)
    return mounts


def _more_folders(
    user_file: UserFile, entry: str, keep_out: Mapping[Path, str], places: Places
) -> tuple[tuple[MountSettings, ...], list[Problem]]:
    mounts: list[MountSettings] = []
    problems: list[Problem] = []
    for mount in user_file.settings.workspaces[entry].mounts:
        try:
            folder = usable_folder(str(places.expand(mount.source)), home=places.home, keep_out=keep_out)
            mounts.append(mount.model_copy(update={"source": str(folder)}))
        except ValueError as error:
            line = user_file.document.line("workspaces", entry, "mounts")
            source = visible(mount.source, limit=4096)
            problems.append(Problem(f"`workspaces.{entry}.mounts`: {source} {error}", line))
    return tuple(mounts), problems


def _folder_problem(user_file: UserFile, entry: str, error: ValueError) -> Problem:
    path = visible(user_file.settings.workspaces[entry].path, limit=4096)
    line = user_file.document.line("workspaces", entry, "path")
    return Problem(f"`workspaces.{entry}.path`: {path} {error}", line)


def _name_of(folder: Path, user_file: UserFile) -> str:
    """Return a workspace's name for a folder that has no entry."""
    name = re.sub(r"[^a-z0-9_-]+", "-", folder.name.lower()).strip("-_")[:64] or "folder"
    if name == NO_FOLDER or name in user_file.settings.workspaces:
        # The record tells workspaces apart by name: a stranger's folder must not pass for a configured one.
        name = f"{name[:57]}-{hashlib.sha256(str(folder).encode()).hexdigest()[:6]}"
    return name
