"""What is promised of every run, one sentence each: word for word what `docs/security.md` says."""

from __future__ import annotations

from types import MappingProxyType

CLAIMS = MappingProxyType(
    {
        "processes": "A program cannot start more processes and threads than its limit.",
        "memory": "A program cannot hold more memory than its limit: heap, files in memory and kernel buffers count, "
        "swap adds nothing.",
        "storage": "A program cannot fill a disk: what it can write is bounded, and lives in its memory.",
        "descriptors": "A program cannot use up the machine's open files.",
        "cpu": "A program cannot take more of the processors than its share, or take precedence over others.",
        "output": "A program cannot flood anyone with output: a bounded part is kept, all of it is counted.",
        "clean": "Output reaches a reader as clean text: nothing in it acts on a terminal or breaks a message.",
        "deadline": "A program cannot outlive its deadline, whatever it ignores, blocks, stops or computes.",
        "orphans": "Nothing that a program starts outlives its run.",
        "network": "A program reaches no network: not the internet, not the host, not another sandbox.",
        "host": "A program reaches no file, device, socket, process or setting of the host.",
        "image": "A program cannot change the image or the workspace.",
        "environment": "A program sees nothing of the environment that the server runs in.",
        "privileges": "A program is not root, holds no capability and cannot gain one.",
        "namespaces": "A program cannot enter or make a namespace of the host's kernel.",
        "syscalls": "A program cannot make the system calls, or open the kinds of sockets, that serve attacks alone.",
        "agent": "A program cannot speak for the agent that reports how it ended: whoever tries ends the run, as lost.",
        "artifacts": "Only new regular files come out of a run, bounded in number and size, under names of our own.",
        "fresh": "A run finds nothing that another run left, before it or beside it.",
    }
)
