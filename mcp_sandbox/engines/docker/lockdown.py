"""The one place where a sandbox's restrictions are written down: a pure function from spec to Docker's words.

Each option stands beside the attack that it stops. Keys are those of the Engine API's container create call,
https://docs.docker.com/reference/api/engine/version/v1.41/#operation/ContainerCreate
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mcp_sandbox import __version__
from mcp_sandbox.config.settings import GVISOR
from mcp_sandbox.engines.docker.seccomp import profile

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from mcp_sandbox.sandbox import Mount, SandboxSpec

SCRATCH = "/scratch"
WORKSPACE = "/workspace"
TMP = "/tmp"  # noqa: S108  # a path inside the sandbox, where it is a tmpfs of the sandbox's own

MASKED = (
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
)
"""What tells of the host, or of the timing of its other work: empty inside."""
READ_ONLY = ("/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger")
"""What would change the host's kernel if it could be written."""

GVISOR_THREADS, GVISOR_THREADS_OF_A_PROCESS, GVISOR_THREADS_OF_A_MOUNT = 64, 5, 4
"""What the host counts as processes is threads of gVisor's, and where they are used up its kernel dies with all that
runs in it. Measured: 57 at the start, 5 more with each process inside, 4 with each mount; none with a thread inside."""

OF_THE_HOSTS_KERNEL = ("", "runc", "crun", "io.containerd.runc.v2")
"""Runtimes whose programs meet the host's kernel, which holds a read-only mount read-only itself."""

LABEL = "io.mcp-sandbox"
"""Prefix of our labels; what carries them is ours to remove."""


def container_config(
    spec: SandboxSpec, *, image_id: str, image_volumes: Iterable[str], labels: Mapping[str, str]
) -> dict[str, Any]:
    """Return the body of the create call for one sandbox."""
    return {
        # By id: what the name means could change between the look and the launch.
        "Image": image_id,
        # Both are given, so that neither of the image's own runs.
        "Entrypoint": list(spec.command),
        "Cmd": [],
        # Numeric and never 0: the image's passwd file is not asked who "root" or "app" is.
        "User": spec.user,
        "WorkingDir": SCRATCH,
        "Env": [f"{name}={value}" for name, value in spec.environment],
        # An image's HEALTHCHECK would be a second program that runs beside ours.
        "Healthcheck": {"Test": ["NONE"]},
        # The image's own could be one that its programs ignore.
        "StopSignal": "SIGKILL",
        # A terminal would merge the streams and act on control characters.
        "Tty": False,
        "OpenStdin": True,
        # The lease: when the one attached client goes, however it goes, stdin ends and the agent exits.
        "StdinOnce": True,
        "AttachStdin": True,
        "AttachStdout": True,
        "AttachStderr": True,
        "Hostname": "sandbox",
        "Labels": {f"{LABEL}.{name}": value for name, value in {"version": __version__, **labels}.items()},
        "HostConfig": _host_config(spec, image_volumes),
    }


def _host_config(spec: SandboxSpec, image_volumes: Iterable[str]) -> dict[str, Any]:
    limits = spec.limits
    host_config: dict[str, Any] = {
        # No interface but loopback: no exfiltration, no metadata service, no host service by gateway, no DNS.
        "NetworkMode": "none",
        # Nothing of the image can be changed, and nothing can be left in the writable layer.
        "ReadonlyRootfs": True,
        "Tmpfs": {
            SCRATCH: _tmpfs(limits.scratch_bytes, spec),
            TMP: _tmpfs(limits.tmp_bytes, spec),
            **({WORKSPACE: _tmpfs(spec.workspace_bytes, spec)} if spec.workspace_bytes else {}),
            # An image's VOLUME would be a writable place on the host's disk with no limit at all.
            **dict.fromkeys(image_volumes, "ro,noexec,nosuid,nodev,size=4k"),
        },
        "Mounts": [_mount(mount, spec.runtime) for mount in spec.mounts],
        # /dev/shm is writable even where the root is not, so it is bounded; its pages count as memory.
        "ShmSize": limits.shm_bytes,
        # A memory hog dies alone. Swap would double the limit where MemorySwap is left out.
        "Memory": limits.memory_bytes,
        "MemorySwap": limits.memory_bytes,
        # Where the whole host runs out, the kernel takes us first; never disabled: that would freeze.
        "OomScoreAdj": 500,
        "OomKillDisable": False,
        "NanoCpus": int(limits.cpus * 1e9),
        # Fork and thread bombs.
        "PidsLimit": _pids_limit(spec),
        "Ulimits": [
            {"Name": "nofile", "Soft": limits.nofile, "Hard": limits.nofile},
            {"Name": "fsize", "Soft": limits.fsize_bytes, "Hard": limits.fsize_bytes},
            # The soft limit alone could be raised; core files of crash loops would fill the scratch folder.
            {"Name": "core", "Soft": 0, "Hard": 0},
        ],
        # mount, ptrace of others, raw sockets, chown, module loading: none without a capability.
        "CapDrop": ["ALL"],
        "CapAdd": [],
        "Privileged": False,
        # A setuid program in the image gives nothing. The profile is ours because an older engine's own
        # leaves io_uring, AF_ALG and AF_VSOCK open.
        "SecurityOpt": ["no-new-privileges", f"seccomp={profile()}"],
        # Shared memory segments, queues and cgroup paths of others are out of sight.
        "IpcMode": "private",
        "CgroupnsMode": "private",
        "PidMode": "",
        "UTSMode": "",
        "UsernsMode": "",
        "Devices": [],
        "DeviceRequests": [],
        "GroupAdd": [],
        "ExtraHosts": [],
        # A flood of output would fill the host's disk through a log; attach works without one.
        "LogConfig": {"Type": "none", "Config": {}},
        # Both replace the engine's own lists, which differ by version; these hold all that any of them has.
        "MaskedPaths": list(MASKED),
        "ReadonlyPaths": list(READ_ONLY),
        "RestartPolicy": {"Name": "no"},
        # With the end of the agent everything of the container goes, whether or not we are there to see it.
        "AutoRemove": True,
    }
    if spec.runtime:
        host_config["Runtime"] = spec.runtime
    return host_config


def _pids_limit(spec: SandboxSpec) -> int:
    if spec.runtime != GVISOR:
        return spec.limits.pids
    of_mounts = GVISOR_THREADS_OF_A_MOUNT * len(spec.mounts)
    return GVISOR_THREADS + GVISOR_THREADS_OF_A_PROCESS * spec.limits.pids + of_mounts


def _tmpfs(size: int, spec: SandboxSpec) -> str:
    # noexec, nosuid, nodev: what the program writes is data. The owner is named besides the mode because
    # runc, where the image has that folder already, gives the tmpfs the folder's mode instead.
    uid, _, gid = spec.user.partition(":")
    return f"rw,noexec,nosuid,nodev,size={size},nr_inodes={spec.limits.inodes},mode=1777,uid={uid},gid={gid}"


def _mount(mount: Mount, runtime: str) -> dict[str, Any]:
    if runtime not in OF_THE_HOSTS_KERNEL and not mount.hides:
        return _read_only_on_the_host(mount)
    return {
        # A mount, not a bind string: a bind string creates a missing source on the host, and breaks on `:`.
        "Type": "bind",
        "Source": mount.source,
        "Target": mount.target,
        "ReadOnly": True,
        # Without these, a file system mounted below the source would appear inside, and writable.
        "BindOptions": {"Propagation": "rprivate", "NonRecursive": True},
    }


def _read_only_on_the_host(mount: Mount) -> dict[str, Any]:
    """Return a mount that the host's kernel holds read-only, whatever the runtime does with it.

    gVisor has the folder read-write on the host and refuses writes itself, except for one: `open` with O_TRUNC empties
    the person's file and then says EROFS. Seen with release 20240729; 20221219's gofer refused it. A volume of the
    local driver is a mount of the engine's own. It is bound to the folder alone, without what is mounted below it.
    """
    return {
        "Type": "volume",
        "Target": mount.target,
        "VolumeOptions": {
            # Else what the image has at the target would be copied to an empty folder.
            "NoCopy": True,
            # Without a name it goes with its container. ReadOnly, which would hold inside too, is refused for these.
            "DriverConfig": {
                "Name": "local",
                "Options": {"type": "none", "o": "bind,ro", "device": mount.source},
            },
        },
    }
