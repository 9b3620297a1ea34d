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
        "network": "A program has no network: not the internet, not the host, not another sandbox. Hosts that you "
        "allow it reaches through the server, which decides anew for each connection.",
        "host": "A program reaches no file, device, socket, process or setting of the host, but the folders that you "
        "show it.",
        "image": "A program cannot change the image or the workspace.",
        "environment": "A program sees nothing of the environment that the server runs in.",
        "privileges": "A program is not root, holds no capability and cannot gain one.",
        "namespaces": "A program cannot enter or make a namespace of the host's kernel.",
        "syscalls": "A program cannot make the system calls, or open the kinds of sockets, that serve attacks alone.",
        "agent": "A program cannot speak for the agent that reports how it ended: what it forges ends the run, as "
        "lost.",
        "artifacts": "Only new regular files come out of a run, bounded in number and size, under names of our own.",
        "fresh": "A run finds nothing that another run left, before it or beside it.",
        "unseen": "Neither the engine's description of a container nor the host's list of processes shows a program, "
        "its inputs or its secrets.",
        "policy": "Neither a call nor a file in the workspace can loosen the policy, unless you agreed to that very "
        "file.",
        "lease": "No sandbox outlives its server, however that ends; what an engine made too late goes when the next "
        "server starts.",
        "neighbours": "A server never touches the sandboxes of another that lives.",
        "nothing_left": "Runs leave nothing on the machine but their record.",
        "proof": "The proof fails where a protection is missing.",
    }
)
