"""What to launch, where a test is not about that."""

from __future__ import annotations

from mcp_sandbox.sandbox import Limits, SandboxSpec

MIB = 1 << 20

SPEC = SandboxSpec(
    image="mcp-sandbox/minimal",
    runtime="",
    command=("python3", "-c", "pass"),
    user="1000:1000",
    limits=Limits(
        memory_bytes=128 * MIB,
        cpus=1,
        pids=64,
        scratch_bytes=16 * MIB,
        tmp_bytes=16 * MIB,
        shm_bytes=8 * MIB,
        nofile=256,
        fsize_bytes=16 * MIB,
        inodes=1000,
    ),
)
