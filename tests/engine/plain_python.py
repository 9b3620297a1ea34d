"""What the sandbox is measured against: runs each program as `python3 main.py`, and does nothing else to it.

It is the first process of a container that is locked down as every sandbox is. From stdin comes one line of
JSON, a list of [name, base64 of the program]; to stdout goes one line of JSON for each program.
"""

import base64
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

WRITABLE = ("/scratch", "/tmp", "/dev/shm")
SECONDS = 20


def main():
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # Programs may signal process 1. Not SIG_IGN, which they would inherit.
        signal.signal(number, lambda *_: None)
    # Not print: unbuffered, it drops the rest of a line where the kernel takes only a part of it, as gVisor's does.
    answers = open(1, "wb")  # noqa: SIM115
    for name, program in json.loads(sys.stdin.buffer.readline()):
        answers.write(json.dumps({"name": name, **run(base64.b64decode(program))}).encode() + b"\n")
        answers.flush()


def run(program):
    empty_folders()
    Path("/scratch/main.py").write_bytes(program)
    process = subprocess.Popen(
        ["python3", "main.py"],
        cwd="/scratch",
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    outputs = {}
    readers = [
        threading.Thread(target=lambda name=name, pipe=pipe: outputs.update({name: pipe.read()}))
        for name, pipe in (("stdout", process.stdout), ("stderr", process.stderr))
    ]
    for reader in readers:
        reader.start()
    status = process.wait(SECONDS)
    end_what_is_left()  # a pipe ends only when the last process that holds it does
    for reader in readers:
        reader.join()
    return {
        "exit_code": status if status >= 0 else None,
        "signal": -status if status < 0 else None,
        **{name: base64.b64encode(data).decode() for name, data in outputs.items()},
    }


def end_what_is_left():
    while True:
        with suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def empty_folders():
    for folder in WRITABLE:
        for entry in os.scandir(folder):
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                Path(entry.path).unlink()


if __name__ == "__main__":
    main()
