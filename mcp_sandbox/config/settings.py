"""Every key of the configuration file: its type, its bounds, its default, and what it means.

These classes are the one list of keys. The docs, the example file, the error messages and the policy are made
from them. A size is an `int` of bytes here and text such as "512MiB" in a file.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    model_validator,
)
from pydantic_core import CoreSchema, core_schema

from mcp_sandbox.config.sizes import format_size, parse_size
from mcp_sandbox.egress.policy import EgressPolicy, InvalidHost, bound_host, parse_entry, printable
from mcp_sandbox.guest.protocol import MAX_CONNECTIONS
from mcp_sandbox.model import Value

if TYPE_CHECKING:
    from collections.abc import Callable

KIB, MIB, GIB, TIB = 2**10, 2**20, 2**30, 2**40

Profile = Literal["standard", "untrusted"]

GVISOR = "runsc"
"""Runtime that puts a kernel of its own between a program and the host's."""

NO_FOLDER = "default"
"""Name of the workspace that needs no entry in a file: `[defaults]`, and no folder."""


@dataclass(frozen=True)
class Between:
    """Bounds of a number, both allowed, told in the unit that a person writes."""

    low: float
    high: float
    write: Callable[[Any], str] = str

    def __str__(self) -> str:
        return f"{self.write(self.low)} to {self.write(self.high)}"

    def check(self, number: float) -> float:
        """Return the number.

        Raises:
            ValueError: It is out of bounds, in words for the person who wrote it.
        """
        if not self.low <= number <= self.high:
            # Python refuses to write an integer of more than 4300 digits, and TOML has hexadecimal ones.
            written = f", not {self.write(number)}" if abs(number) < 10**18 else ""
            raise ValueError(f"must be between {self.write(self.low)} and {self.write(self.high)}{written}")
        return number

    def __get_pydantic_core_schema__(self, source: object, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Check after the type."""
        return core_schema.no_info_after_validator_function(self.check, handler(source))


def _matching(pattern: str, meaning: str) -> AfterValidator:
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise ValueError(f"must be {meaning}")
        return text

    return AfterValidator(check)


def _absolute(path: str) -> str:
    if path and not path.startswith(("/", "~/")) and path != "~":
        raise ValueError("must be an absolute path, or one that starts with ~/")
    if not path.isprintable():
        raise ValueError("must not hold control characters")
    return path


def _list(value: object) -> object:
    """Take the lists of a file for what they are: values that nobody changes."""
    return tuple(value) if isinstance(value, list) else value


def _size(low: int, high: int) -> tuple[BeforeValidator, Between]:
    return BeforeValidator(parse_size), Between(low, high, format_size)


def user_ids(user: str) -> tuple[int, int]:
    """Return uid and gid of a "uid:gid".

    Raises:
        ValueError: It is not two numbers, or one of them is root's.
    """
    match = re.fullmatch(r"([0-9]{1,10}):([0-9]{1,10})", user)
    if match is None:
        raise ValueError('must be two numbers, "uid:gid", such as "1000:1000"')
    uid, gid = int(match[1]), int(match[2])
    if uid == 0 or gid == 0:
        raise ValueError("must not be root (0)")
    if max(uid, gid) > 2**31 - 1:
        raise ValueError(f"must be at most {2**31 - 1}")
    return uid, gid


def _user(user: str) -> str:
    if user:
        user_ids(user)
    return user


def _globs(patterns: tuple[str, ...]) -> tuple[str, ...]:
    for pattern in patterns:
        parts = pattern.removesuffix("/").split("/")
        if not pattern.isprintable() or len(pattern) > 200 or any(p in ("", ".", "..", "**") for p in parts):
            raise ValueError(
                "must hold names such as *.key, folders such as .ssh/, or both such as .docker/config.json; "
                "each means any depth"
            )
    return patterns


Globs = Annotated[tuple[str, ...], BeforeValidator(_list), Field(max_length=200), AfterValidator(_globs)]
"""Names of files and folders, as shells match them, at any depth; a folder alone where it ends in `/`."""

MASK = (
    ".env*",
    "*.env",
    "id_rsa*",
    "id_dsa*",
    "id_ecdsa*",
    "id_ed25519*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.ppk",
    "*.jks",
    "*.keystore",
    "*.kdb",
    "*.kdbx",
    ".ssh/",
    ".gnupg/",
    ".aws/",
    ".azure/",
    ".kube/",
    "gcloud/",
    ".docker/config.json",
    ".dockercfg",
    ".git/config",
    ".git/modules/*/config",
    ".git-credentials",
    ".netrc",
    "_netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".my.cnf",
    ".htpasswd",
    ".s3cfg",
    ".boto",
    ".vault-token",
    ".terraformrc",
    "*.tfstate*",
    "rclone.conf",
    "credentials*.json",
    "client_secret*.json",
    "service[-_]account*.json",
    "secrets.json",
    "secrets.toml",
    "secrets.y*ml",
    ".cargo/credentials*",
    ".gem/credentials",
)
"""What usually holds credentials. `.git/config` is hidden only where it does."""

WorkspaceName = Annotated[
    str,
    _matching(
        r"[a-z0-9][a-z0-9_-]{0,63}",
        "1 to 64 of the characters a-z, 0-9, - and _, and start with a letter or digit",
    ),
]


def _not_reserved(name: str) -> str:
    if name == NO_FOLDER:
        raise ValueError("is taken by the workspace that has no folder: put its keys under [defaults]")
    return name


class Settings(Value):
    """Keys of one table: types are exact (no "30" for 30), and unknown keys are refused."""

    model_config = ConfigDict(strict=True, allow_inf_nan=False)


class PolicySettings(Settings):
    """What a run may use: the keys of `[defaults]`, of each workspace, and of a folder's own file."""

    profile: Profile = "standard"
    """Preset that the other keys start from. `untrusted` needs gVisor; its limits can only be tightened."""
    image: Annotated[
        str,
        _matching(
            r"[A-Za-z0-9][A-Za-z0-9._:/@-]{0,254}", "the name of an image, such as mcp-sandbox/standard"
        ),
    ] = "mcp-sandbox/standard"
    """Image on the engine; nothing is ever pulled during a call."""
    runtime: Annotated[
        str, _matching(r"([A-Za-z0-9][A-Za-z0-9._-]{0,63})?", "the name of a runtime, such as runsc")
    ] = ""
    """OCI runtime as the engine knows it, such as `runsc` (gVisor); empty for the engine's default."""
    timeout_seconds: Annotated[float, Between(1, 86400)] = 30.0
    """Wall-clock limit of a run that asks for none."""
    max_timeout_seconds: Annotated[float, Between(1, 86400)] = 300.0
    """Longest wall-clock limit that a run may ask for."""
    memory: Annotated[int, *_size(64 * MIB, TIB)] = GIB
    """Memory of the whole sandbox, files in it included; swap adds nothing."""
    cpus: Annotated[float, Between(0.1, 512)] = 1.0
    """CPUs, as in `docker run --cpus`."""
    pids_limit: Annotated[int, Between(16, 32768)] = 256
    """Processes and threads at once; under gVisor, processes."""
    scratch_size: Annotated[int, *_size(MIB, 512 * GIB)] = 256 * MIB
    """Size of `/scratch`, where programs start and write; counts as memory."""
    tmp_size: Annotated[int, *_size(MIB, 512 * GIB)] = 64 * MIB
    """Size of `/tmp`; counts as memory."""
    shm_size: Annotated[int, *_size(MIB, 512 * GIB)] = 64 * MIB
    """Size of `/dev/shm`; counts as memory."""
    nofile: Annotated[int, Between(64, 1048576)] = 1024
    """Open files of each process."""
    inodes: Annotated[int, Between(256, 16777216)] = 65536
    """Files and folders that `/scratch` and `/tmp` can hold, each."""
    code_limit: Annotated[int, *_size(KIB, 16 * MIB)] = MIB
    """Largest program that is accepted."""
    output_limit: Annotated[int, *_size(KIB, 64 * MIB)] = MIB
    """How much of stdout, and of stderr, is kept in the record."""
    reply_limit: Annotated[int, *_size(KIB, MIB)] = 20 * KIB
    """How much of stdout and stderr together the model is shown."""
    input_limit: Annotated[int, *_size(KIB, 32 * MIB)] = 8 * MIB
    """How much a call may bring along as files and stdin, together."""
    artifact_count: Annotated[int, Between(0, 100_000)] = 1000
    """How many files may come out of a run; 0 keeps all inside."""
    artifact_limit: Annotated[int, *_size(KIB, 512 * GIB)] = 256 * MIB
    """Size of the largest file that comes out."""
    artifact_total_limit: Annotated[int, *_size(KIB, 512 * GIB)] = 256 * MIB
    """Size of all files that come out of a run, together."""
    mask: Globs = MASK
    """Files and folders of the workspace that programs find empty. What is written here is added to these."""
    unsafe_unmask: Globs = ()
    """Files and folders that programs see although `mask` hides them."""
    workspace_transfer: Literal["auto", "mount", "copy"] = "auto"
    """How the workspace comes to programs: `mount` shows the folder itself, `copy` sends its files to each sandbox;
    `auto` mounts where the engine has a socket on this machine, and copies elsewhere."""
    workspace_copy_limit: Annotated[int, *_size(MIB, 512 * GIB)] = 128 * MIB
    """Size of all files that are copied, together; counts as memory."""
    workspace_copy_ignore: Globs = (".git/", "node_modules/", "__pycache__/", ".venv/")
    """Files and folders that are not copied."""
    ready: Annotated[int, Between(0, 16)] = 1
    """Sandboxes that are kept started, never used, so that a call need not wait for one; 0 for none."""
    ready_idle_seconds: Annotated[float, Between(1, 86400)] = 900.0
    """How long a sandbox is kept ready when no call comes."""
    preload: Annotated[
        tuple[Annotated[str, _matching(r"[A-Za-z_][\w.]{0,99}", "the name of a module")], ...],
        BeforeValidator(_list),
    ] = ()
    """Modules such as `"numpy"` that a waiting sandbox imports: a program runs as if it had done so first."""
    user: Annotated[str, AfterValidator(_user)] = ""
    """Numeric `uid:gid` of programs, never root; empty for your own ids (1000:1000 where you are root)."""
    unsafe_allow_unconfined_seccomp: bool = False
    """Run even on an engine that filters no system calls."""


_OF_THE_SANDBOX = re.compile(
    "bin|boot|dev|etc|home|lib(32|64|x32)?|proc|root|run|sbin|scratch|sys|tmp|usr|var|workspace"
)


def _target(path: str) -> str:
    parts = path.split("/")
    plain = path.isprintable() and len(path) <= 200 and not any(p in ("", ".", "..") for p in parts[1:])
    if parts[0] or not plain:
        raise ValueError("must be an absolute path such as /data")
    if _OF_THE_SANDBOX.fullmatch(parts[1]):
        raise ValueError(f"must be a place of its own such as /data: /{parts[1]} is the sandbox's")
    return path


class MountSettings(Settings):
    """One `[[workspaces.NAME.mounts]]`: one more folder that programs see, read-only; `mask` holds there too."""

    source: Annotated[str, AfterValidator(_absolute)]
    """Folder on this machine."""
    target: Annotated[str, AfterValidator(_target)]
    """Where programs see it, such as `/data`."""


def _apart(mounts: tuple[MountSettings, ...]) -> tuple[MountSettings, ...]:
    targets = sorted(f"{mount.target}/" for mount in mounts)
    if any(inner.startswith(outer) for outer, inner in pairwise(targets)):
        raise ValueError("must have targets of which none lies in another")
    return mounts


Mounts = Annotated[
    tuple[MountSettings, ...], BeforeValidator(_list), Field(max_length=20), AfterValidator(_apart)
]


def _entries(allow: tuple[str, ...]) -> tuple[str, ...]:
    for entry in allow:
        parse_entry(entry)
    return allow


def _upstream(address: str) -> str:
    if address and not re.fullmatch(r"http://[A-Za-z0-9.-]{1,253}:[0-9]{1,5}", address):
        raise ValueError("must be an address such as http://proxy.example:3128")
    return address


class EgressSettings(Settings):
    """One `[workspaces.NAME.egress]`: which hosts programs may reach; the sandbox itself never has a network."""

    allow: Annotated[
        tuple[str, ...], BeforeValidator(_list), Field(max_length=1000), AfterValidator(_entries)
    ] = ()
    """Hosts such as `"api.example.com"`, `"*.example.com:443"` or `"http://intranet.example:8080"`; none by default."""
    upstream_proxy: Annotated[str, AfterValidator(_upstream)] = ""
    """HTTP proxy that this machine has to use, such as `http://proxy.example:3128`; empty for none."""
    ca_bundle: Annotated[str, AfterValidator(_absolute)] = ""
    """File of certificates (PEM) that programs trust beside the public authorities', such as a company's own; empty
    for none."""
    requests: Annotated[int, Between(1, 10_000)] = 1000
    """Requests and TLS connections of one run, in all."""
    connections: Annotated[int, Between(1, MAX_CONNECTIONS)] = MAX_CONNECTIONS
    """Connections of one run at once."""
    upload_limit: Annotated[int, *_size(KIB, TIB)] = 64 * MIB
    """How much one run may send, to all hosts together."""
    download_limit: Annotated[int, *_size(KIB, TIB)] = GIB
    """How much one run may receive, from all hosts together."""
    connect_seconds: Annotated[float, Between(1, 300)] = 10.0
    """Longest time to look a name up and connect."""
    idle_seconds: Annotated[float, Between(1, 86400)] = 120.0
    """Longest time without a byte on a connection, either way."""
    connection_seconds: Annotated[float, Between(1, 86400)] = 3600.0
    """Longest time for one connection, or one request with its response; never longer than the run."""


def _index(address: str) -> str:
    if address and not re.fullmatch(r"https?://[A-Za-z0-9.\-]{1,253}(:[0-9]{1,5})?(/[!-~]*)?", address):
        raise ValueError(
            "must be an address such as https://pypi.org/simple, without user name and password (PIP_INDEX_URL in the "
            "server's environment may have them)"
        )
    return address


def _lock_path(path: str) -> str:
    if not path.isprintable() or len(path) > 1000 or path.endswith("/"):
        raise ValueError("must be the path of a file")
    return path


def _package_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if name != "*" and not re.fullmatch(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,99}[A-Za-z0-9])?", name):
            raise ValueError('must hold names of packages such as "requests", or "*" for any')
    return names


class DependencySettings(Settings):
    """One `[workspaces.NAME.dependencies]`: packages for programs, installed once in a sandbox of their own."""

    lock: Annotated[str, AfterValidator(_lock_path)] = ""
    """Lock with hashes: pip's requirements, `pylock.toml` or `uv.lock`; in the workspace's folder, or an absolute
    path; empty for none."""
    index: Annotated[str, AfterValidator(_index)] = ""
    """Index that packages come from; empty for what PIP_INDEX_URL names, else PyPI."""
    allow: Annotated[
        tuple[str, ...], BeforeValidator(_list), Field(max_length=100), AfterValidator(_entries)
    ] = ()
    """Hosts beside the index's that packages may be fetched from, as under `egress`; PyPI's own needs no entry."""
    inline: Literal["deny", "allow"] = "deny"
    """Whether a program may name packages itself, in a `# /// script` block; it then finds those alone."""
    inline_names: Annotated[
        tuple[str, ...], BeforeValidator(_list), Field(max_length=1000), AfterValidator(_package_names)
    ] = ()
    """Packages that a program may name; `"*"` for any. What these need in turn is installed with them."""
    source_builds: Literal["deny", "allow"] = "deny"
    """Whether packages that have no wheel are built: that runs their authors' code, in the sandbox that installs."""
    size_limit: Annotated[int, *_size(16 * MIB, 512 * GIB)] = 2 * GIB
    """Room to install in; counts as memory of the sandbox that installs."""


_RESERVED_NAME = re.compile(
    # What Python, the loader, shells or libraries read: a secret there would change how programs run.
    "PATH|HOME|LANG|LC_.*|TMPDIR|TMP|TEMP|TERM|USER|LOGNAME|SHELL|PWD|OLDPWD|IFS|ENV|BASH.*|SHELLOPTS|PS[0-4]"
    "|PROMPT_COMMAND|LD_.*|DYLD_.*|GCONV_PATH|GLIBC_.*|MALLOC_.*|LOCPATH|NLSPATH|PYTHON.*|(.*_)?PROXY|NODE_OPTIONS"
    "|PERL5.*|RUBY(OPT|LIB)|GIT_(SSH|SSL|EXEC|CONFIG|PROXY).*|SSL_CERT_.*|.*_CA_BUNDLE|PIP_.*|NODE_EXTRA_CA_CERTS"
)


def _own_name(name: str) -> str:
    if _RESERVED_NAME.fullmatch(name):
        raise ValueError("is reserved: it would change how programs run")
    return name


SecretName = Annotated[
    str,
    _matching(
        r"[A-Z_][A-Z0-9_]{0,63}", "1 to 64 of the characters A-Z, 0-9 and _, and start with a letter or _"
    ),
    AfterValidator(_own_name),
]

SecretNames = Annotated[tuple[SecretName, ...], BeforeValidator(_list)]


ToolName = Literal["execute_python", "execute_shell"]


def _bound_hosts(hosts: tuple[str, ...]) -> tuple[str, ...]:
    for host in hosts:
        try:
            bound_host(host)
        except InvalidHost as error:
            raise ValueError(f"holds {json.dumps(printable(host))}: {error}") from None
    return hosts


class SecretSettings(Settings):
    """One entry of `[workspaces.NAME.secrets]`: where a run's variable of that name comes from, by one of these."""

    env: Annotated[str, _matching(r"[A-Za-z_]\w{0,255}", "the name of an environment variable")] | None = None
    """Variable in the server's own environment."""
    file: Annotated[str, AfterValidator(_absolute)] | None = None
    """File that holds it; a line end at its end is left out."""
    command: Annotated[tuple[str, ...], BeforeValidator(_list), Field(min_length=1, max_length=64)] | None = (
        None
    )
    """Command that prints it within 10 s, such as `["pass", "show", "x"]`; it runs without a shell."""
    keyring: Annotated[str, _matching(r"[^:].*:.+", "a service and a user, as in service:user")] | None = None
    """Entry of the system's keyring, as `service:user`; needs `mcp-sandbox[keyring]`."""
    hosts: Annotated[
        tuple[str, ...], BeforeValidator(_list), Field(max_length=20), AfterValidator(_bound_hosts)
    ] = ()
    """Hosts such as `"api.example.com"` that alone get it, over TLS, while programs hold a placeholder; `egress.allow`
    has to name them too. Empty gives it to programs."""
    tools: Annotated[tuple[ToolName, ...], BeforeValidator(_list), Field(min_length=1)] = (
        "execute_python",
        "execute_shell",
    )
    """Tools whose runs get it; `mcp-sandbox run` and `shell` count as the tool of their language."""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        if sum(value is not None for value in (self.env, self.file, self.command, self.keyring)) != 1:
            raise ValueError("must have exactly one of env, file, command and keyring")
        if self.file == "" or (self.command is not None and not self.command[0]):
            raise ValueError("must not be empty")
        return self

    def __str__(self) -> str:
        """Name the source, and of a command its program alone: arguments are nobody else's business."""
        if self.env is not None:
            return f"the environment variable {self.env}"
        if self.file is not None:
            return f"the file {self.file}"
        if self.command is not None:
            return f"the command {self.command[0]!a}"
        return f"the keyring entry {self.keyring!a}"


class WorkspaceSettings(PolicySettings):
    """One `[workspaces.NAME]`: a folder, and any key of `[defaults]`."""

    path: Annotated[str, AfterValidator(_absolute)] = ""
    """Folder that programs see, read-only, at `/workspace`; empty for none."""
    mounts: Mounts = ()
    """More folders, each a table `[[workspaces.NAME.mounts]]`."""
    egress: EgressSettings = EgressSettings()
    """Hosts that programs may reach: a table `[workspaces.NAME.egress]`."""
    dependencies: DependencySettings = DependencySettings()
    """Packages for programs: a table `[workspaces.NAME.dependencies]`."""
    secrets: dict[SecretName, SecretSettings] = Field(default_factory=dict, max_length=64)
    """Environment variables that runs get, and that are kept out of what comes back: a table
    `[workspaces.NAME.secrets]`."""

    @model_validator(mode="after")
    def _allows_what_secrets_are_bound_to(self) -> Self:
        policy = EgressPolicy.parse(self.egress.allow, workspace="")
        for name, secret in self.secrets.items():
            for host in secret.hosts:
                if not policy.decide(*bound_host(host), "https").allowed:
                    raise ValueError(
                        f"secrets.{name} is bound to {json.dumps(host)}, which egress.allow does not name for TLS"
                    )
        return self


class EngineSettings(Settings):
    """The engine that sandboxes run on."""

    host: Annotated[
        str, _matching(r"(unix:///[ -~]+|(tcp|ssh)://[!-~]+)?", "a unix:///, tcp:// or ssh:// address")
    ] = ""
    """Address such as `unix:///var/run/docker.sock`; empty to find the engine as the docker command does."""


class ServerSettings(Settings):
    """How much one server does at once."""

    max_parallel: Annotated[int, Between(1, 256)] = 4
    """Runs at once."""
    max_queued: Annotated[int, Between(0, 4096)] = 64
    """Calls that wait for their turn; one more is refused as busy."""
    reply_within_seconds: Annotated[float, Between(1, 86400)] = 45.0
    """Longest time until a call is answered; a longer run goes on, and the answer says how to get it."""


class AuditSettings(Settings):
    """The record of what ran."""

    path: Annotated[str, AfterValidator(_absolute)] = ""
    """Folder of the record; empty for the state folder of your system."""
    unsafe_run_unrecorded: bool = False
    """Run programs even when the record cannot be written."""


class FileSettings(Settings):
    """A whole configuration file."""

    engine: EngineSettings = EngineSettings()
    server: ServerSettings = ServerSettings()
    audit: AuditSettings = AuditSettings()
    defaults: PolicySettings = PolicySettings()
    workspaces: dict[Annotated[WorkspaceName, AfterValidator(_not_reserved)], WorkspaceSettings] = Field(
        default_factory=dict
    )


TABLES: dict[str, type[Settings]] = {
    "[engine]": EngineSettings,
    "[server]": ServerSettings,
    "[audit]": AuditSettings,
    "[defaults]": PolicySettings,
    "[workspaces.NAME]": WorkspaceSettings,
    "[[workspaces.NAME.mounts]]": MountSettings,
    "[workspaces.NAME.egress]": EgressSettings,
    "[workspaces.NAME.dependencies]": DependencySettings,
    "[workspaces.NAME.secrets.VARIABLE]": SecretSettings,
}
"""Every table of the file, as it is headed there."""


def is_size(settings: type[Settings], key: str) -> bool:
    """Tell whether a key holds a size."""
    return any(
        isinstance(part, Between) and part.write is format_size
        for part in settings.model_fields[key].metadata
    )


def written(settings: type[Settings], key: str, value: object) -> str:
    """Write a value as a person would: `1GiB`, `0.5`, `true`."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int) and is_size(settings, key):
        return format_size(value)
    if isinstance(value, tuple):
        return json.dumps(value, ensure_ascii=False, default=lambda part: part.model_dump(mode="json"))
    if isinstance(value, Settings):
        return ", ".join(f"{name} = {written(type(value), name, part)}" for name, part in value)
    return f"{value:g}" if isinstance(value, float) else str(value)


def written_toml(settings: type[Settings], key: str, value: object) -> str:
    """Write a value as it stands in a file: `"1GiB"`, `0.5`, `true`."""
    text = written(settings, key, value)
    # For what a key may hold, JSON's quoting is TOML's.
    return json.dumps(text, ensure_ascii=False) if isinstance(value, str) or is_size(settings, key) else text
