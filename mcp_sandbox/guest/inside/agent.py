"""The first process in a sandbox: runs one program and tells the host side how it went, on stdin and stdout.

It arrives as the container's command, so it always matches the server, and any image with python3 (3.8 or
newer) can run it. Only the standard library, and little of that: a waiting sandbox pays for every import in
memory, a new one in time. `mcp_sandbox.guest.protocol` is the other half of what is said here.

As process 1 it is the program's lease: when stdin ends, because the server let go or died by any means, it
exits, and the kernel kills everything else in its PID namespace. The program shares its user, so it makes
itself non-dumpable (its memory, files and environment are then refused to the program) and marks every frame
with a token that no process of the program ever held.
"""

import _signal as signal  # `signal` itself costs 4 ms, for the names of its numbers
import ctypes
import fcntl
import os
import resource
import select
import stat
import struct
import sys
import time

SCRATCH = "/scratch"
WORKSPACE = "/workspace"
MAX_LINKS = 4096  # top-level entries that get a link: more would delay every start
MAX_INBOUND = 64 << 20  # bytes of one frame from the host side, which is trusted: a guard against desync
CHUNK = 64 << 10  # largest payload that the host side accepts
BULK = 256 << 10  # bytes read at once where nothing is passed on
PIPE_SIZE = 256 << 10  # so that a program which writes much is not woken for every 64 KiB
REST_SECONDS = 0.001  # after a small read: a million one-byte writes become a thousand frames
SMALL = 4 << 10  # bytes: a read below this was a small one
KILL_SECONDS = 1.0  # for processes that do not die of SIGKILL at once (uninterruptible sleep)
PR_SET_DUMPABLE = 4
WARM = "/tmp/.warm"
F_SETPIPE_SZ = 1031  # fcntl names it from Python 3.10 on
MAX_WALKED = 100000  # entries of the working folder that are looked at
MAX_DEPTH = 64  # of folders in it: each level holds a descriptor open
MAX_PATH = 1024  # bytes of an artifact's path
MAX_REFUSALS = 100  # artifacts whose refusal is told by name; the rest is counted
COPY = 1 << 20  # a file's number where it is one of the workspace's

EGRESS = "--egress"
PROXY_PORT = 3128
MAX_CONNECTIONS = 64
WINDOW = 256 << 10  # bytes of one connection, each way, that are under way unasked
TERMINAL = 0  # the number of the one connection that is a terminal

NUMBER = struct.Struct(">I")
SIZE = struct.Struct(">HH")  # rows, columns
UP = struct.Struct(">16scI")  # token, kind, length of the payload
DOWN = struct.Struct(">cI")  # kind, length of the payload


class Output:
    """One output stream of the program: the head passed on as it comes, a tail kept, the rest counted."""

    def __init__(self, kind):
        self.kind = kind
        self.fd, self.program_end = os.pipe()
        os.set_blocking(self.fd, False)
        try:
            fcntl.fcntl(self.fd, F_SETPIPE_SZ, PIPE_SIZE)
        except OSError:
            pass  # beyond the user's share: then it stays at 64 KiB
        self.total = 0
        self.lines = 0
        self.head_left = 0
        self.tail_size = 0
        self.tail = bytearray()
        self.open = True
        self.rest_until = 0.0

    def read(self, agent):
        """Take what is there; False when there is nothing more for now."""
        try:
            data = os.read(self.fd, CHUNK if self.head_left else BULK)
        except BlockingIOError:
            return False
        if not data:
            self.open = False
            return False
        self.total += len(data)
        self.lines += data.count(b"\n")
        self.rest_until = time.monotonic() + REST_SECONDS if len(data) < SMALL else 0.0
        if self.head_left:
            head = data[: self.head_left]
            self.head_left -= len(head)
            agent.send(self.kind, head)
            data = data[len(head) :]
        if data:
            self.tail += data
            if len(self.tail) > self.tail_size + BULK:
                del self.tail[: -self.tail_size or None]
        return True

    def send_tail(self, agent):
        """Pass on the last bytes, which follow a gap where the host side counts fewer than `total`."""
        tail = bytes(self.tail[-self.tail_size :]) if self.tail_size else b""
        for start in range(0, len(tail), CHUNK):
            agent.send(self.kind.upper(), tail[start : start + CHUNK])


class Input:
    """Bytes on their way into a pipe that the program reads when it likes."""

    def __init__(self, fd):
        self.fd = fd
        self.data = memoryview(b"")
        os.set_blocking(fd, False)

    def write(self):
        """Write what fits; False when all is written or nobody will read it."""
        try:
            while self.data:
                self.data = self.data[os.write(self.fd, self.data) :]
        except BlockingIOError:
            return True
        except OSError:
            pass
        self.close()
        return False

    def close(self):
        os.close(self.fd)
        self.fd = -1


class Agent:
    """Runs one program, once."""

    def __init__(self):
        self.token = bytes(16)
        self.inbox = bytearray()
        self.outputs = [Output(b"o"), Output(b"e")]
        self.program_stdin, stdin = os.pipe()
        self.inputs = [Input(stdin)]
        self.program = 0
        self.wait_status = None
        self.started = 0
        self.deadline = None
        self.waiting_file = -1
        self.links = {}
        self.given = {}
        self.receiving = -1
        self.connections = Connections(self)
        self.terminal = None
        self.woken, wake = os.pipe()
        for fd in (self.woken, wake):
            os.set_blocking(fd, False)
        signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for name in ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2"):
            # Where the kernel does not shield process 1 (gVisor), the program could stop us with any.
            signal.signal(getattr(signal, "SIG" + name), signal.SIG_IGN)

    # ---- speaking with the host side

    def send(self, kind, payload):
        write_all(1, UP.pack(self.token, kind, len(payload)) + payload)

    def send_fields(self, kind, **fields):
        text = "".join("%s %s\n" % item for item in fields.items() if item[1] is not None)
        self.send(kind, text.encode("ascii"))

    def hear(self):
        """Act on what the host side sent; its going away is the end of this sandbox."""
        data = os.read(0, BULK)
        if not data:
            os._exit(0)
        self.inbox += data
        while len(self.inbox) >= DOWN.size:
            kind, length = DOWN.unpack_from(self.inbox)
            if length > MAX_INBOUND:
                os._exit(70)
            if len(self.inbox) < DOWN.size + length:
                return
            payload = bytes(self.inbox[DOWN.size : DOWN.size + length])
            del self.inbox[: DOWN.size + length]
            self.obey(kind, payload)

    def obey(self, kind, payload):
        first = {b"C": self.receive_copy, b"L": self.show_copies, b"F": self.receive_file, b"R": self.start}
        if kind in first and not self.started:
            first[kind](payload)
        elif kind == b"D" and self.receiving >= 0:
            self.receive_data(payload)
        elif kind == b"K" and self.started:
            self.finish("killed")
        elif kind == b"T" and self.terminal:
            self.terminal.resize(*SIZE.unpack(payload))
        elif kind in (b"W", b"V", b"Q", b"X") and len(payload) >= NUMBER.size:
            self.connections.hear(kind, payload)
        else:
            os._exit(70)

    # ---- running the program

    def prepare(self):
        """Make all ready for a program."""
        os.chdir(SCRATCH)
        if EGRESS in sys.argv:
            self.connections.listen()
        self.links = link_workspace()
        self.wait_in_python()

    def wait_in_python(self):
        """Start a Python that stops where it would open its program.

        The waiting Python is a real `python3 main.py`: the interpreter initialises, then reads a FIFO which
        we hold open. No frame, flag or argument of ours is ever in it.
        """
        self.main = "main.py"
        while os.fsencode(self.main) in self.links:  # a workspace's own file of that name stays what it is
            self.main = "_" + self.main
        os.mkfifo(self.main, 0o600)
        self.waiting_file = os.open(self.main, os.O_RDWR | os.O_NONBLOCK)
        self.spawn(["python3", self.main], warm_environment())

    def receive_copy(self, payload):
        """Make a file of the workspace, where that is copied."""
        self.close_received()
        path = os.path.join(os.fsencode(WORKSPACE), payload)
        try:
            os.makedirs(os.path.dirname(path), exist_ok=True)
            self.receiving = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o444)
        except OSError as error:
            self.fail(error, COPY)

    def show_copies(self, _):
        """Let the copied workspace appear, as read-only as it can be made."""
        self.close_received()
        for folder, _, _ in os.walk(WORKSPACE, topdown=False):
            # An engine that knows no owner of a tmpfs leaves the outermost to root, open to all.
            if os.stat(folder).st_uid == os.getuid():
                os.chmod(folder, 0o555)
        if os.path.exists(os.path.join(WORKSPACE, self.main)):
            self.dismiss()
            self.links = link_workspace()
            self.wait_in_python()
        else:
            self.links = link_workspace()

    def receive_file(self, payload):
        """Make a file that the call brings along; it takes the place of a workspace entry of that name."""
        self.close_received()
        self.given[payload] = None
        if payload == os.fsencode(self.main):
            self.dismiss()  # the program itself, to be looked at and not to be run
        try:
            if self.links.pop(payload, None):
                os.unlink(payload)
            if b"/" in payload:
                os.makedirs(os.path.dirname(payload), exist_ok=True)
            self.receiving = os.open(payload, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o644)
        except OSError as error:
            self.fail(error, len(self.given))

    def receive_data(self, data):
        try:
            write_all(self.receiving, data)
        except OSError as error:
            self.fail(error, len(self.given) or COPY)

    def close_received(self):
        if self.receiving >= 0:
            os.close(self.receiving)
            self.receiving = -1

    def fail(self, error, file):
        """Tell which file, counted from 1, cannot be written (0: the program), and end: nothing ran."""
        self.send_fields(b"f", file=file, errno=error.errno)
        os._exit(0)

    def spawn(self, argv, environment=None):
        self.program = os.fork()
        if self.program:
            return
        try:
            set_dumpable(1)  # no program runs yet that could look; after exec the flag is 1 in any case
            try:
                with open("/proc/self/oom_score_adj", "w") as score:
                    score.write("1000")  # so that the kernel takes the program, and we live to tell
            except OSError:
                pass
            for number in range(1, signal.NSIG):
                try:
                    signal.signal(number, signal.SIG_DFL)
                except OSError:
                    pass  # SIGKILL, SIGSTOP, and those that the C library keeps for itself
            os.setsid()
            for target, fd in enumerate(self.program_ends()):
                os.dup2(fd, target)
            if self.terminal:
                self.terminal.control()
            os.execvpe(argv[0], argv, os.environ if environment is None else environment)
        except OSError as error:
            os.write(2, ("%s: %s\n" % (argv[0], error.strerror)).encode())
        finally:
            os._exit(127)

    def program_ends(self):
        """Return what the program has as its stdin, stdout and stderr."""
        if self.terminal:
            return [self.terminal.program_end] * 3
        return [self.program_stdin, *(output.program_end for output in self.outputs)]

    def start(self, payload):
        header, _, body = payload.partition(b"\n\n")
        fields = dict(line.split(b" ", 1) for line in header.split(b"\n"))
        self.close_received()
        limits = (b"artifacts", b"artifact_bytes", b"artifacts_bytes")
        self.artifact_limits = [int(fields[name]) for name in limits]
        code = body[: int(fields[b"code"])]
        variables = body[len(code) : len(code) + int(fields[b"environment"])]
        self.inputs[0].data = memoryview(body[len(code) + len(variables) :])
        environment = None
        if variables:
            environment = dict(os.environb)
            environment.update(pair.split(b"=", 1) for pair in variables.split(b"\0"))
        for output in self.outputs:
            output.head_left = int(fields[b"head"])
            output.tail_size = int(fields[b"tail"])
        self.reap()
        self.given = {path: identity(os.lstat(path)) for path in self.given}
        if fields[b"language"] == b"python":
            self.release(code, fields[b"seekable"] == b"1", environment)
        else:
            self.dismiss()
            if b"terminal" in fields:
                self.terminal = Terminal(*map(int, fields[b"terminal"].split()))
            self.announce()
            self.spawn([first_program("bash", "sh"), "-c", code], environment)
            if self.terminal:
                os.close(self.terminal.program_end)
                self.connections.add(TERMINAL, self.terminal)
        # Only now: no process of the program ever held it.
        self.token = bytes.fromhex(fields[b"token"].decode())
        os.close(self.program_stdin)
        for output in self.outputs:
            os.close(output.program_end)
        self.deadline = time.monotonic() + int(fields[b"deadline_ms"]) / 1000
        self.inputs = [i for i in self.inputs if i.write()]

    def announce(self):
        """Say that the program starts: the last word that needs no token, as none of its code has run yet."""
        self.send_fields(b"s")
        self.started = time.monotonic_ns()

    def release(self, code, seekable, environment):
        """Let the waiting Python read its program, which from now on is also the file of that name.

        Where it has not come to open its program yet, it finds the file instead of the FIFO: just as good.
        """
        file = -1
        new = "." + os.urandom(8).hex()  # taken by nothing that was given
        try:
            file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
            write_all(file, code)
        except OSError as error:
            self.fail(error, file=0)
        # A Python that still imports would go on doing so in the program's time, and in its sight.
        anew = seekable or environment is not None or self.wait_status is not None or os.path.exists(WARM)
        if anew:
            # Python seeks in a source that declares another encoding than UTF-8, which a FIFO refuses; and a
            # process that waits cannot be given variables. Before the rename, or it could run the file, too.
            self.dismiss()
        self.announce()
        os.rename(new, self.main)
        self.given[os.fsencode(self.main)] = identity(os.fstat(file))
        os.close(file)
        if anew:
            self.spawn(["python3", self.main], environment)
            return
        source, self.waiting_file = Input(self.waiting_file), -1
        source.data = memoryview(code)
        self.inputs.append(source)

    def dismiss(self):
        """End the waiting Python, if it waits, and take away what it waits for."""
        if self.waiting_file < 0:
            return
        os.close(self.waiting_file)
        self.waiting_file = -1
        os.unlink(self.main)
        if self.wait_status is None:
            os.kill(self.program, signal.SIGKILL)
            os.waitpid(self.program, 0)
        self.wait_status = None
        remove_folder(WARM)

    def reap(self):
        """Collect who has died; False when no process is left but us."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if not pid:
                return True
            if pid == self.program:
                self.wait_status = status

    def kill_all(self):
        """Kill every other process in this PID namespace; the number of seconds is bounded."""
        give_up = time.monotonic() + KILL_SECONDS
        while time.monotonic() < give_up:
            try:
                os.kill(-1, signal.SIGKILL)
            except OSError:
                pass
            if not self.reap():
                return
            select.select([self.woken], [], [], 0.01)
            drain(self.woken)

    def finish(self, reason):
        """Kill what is left, tell the rest, and end the sandbox."""
        ended = time.monotonic_ns()
        self.kill_all()
        for output in self.outputs:
            while output.read(self):
                pass
            output.send_tail(self)
        if self.terminal:
            self.send_rest_of_terminal()
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        status = self.wait_status
        oom_kills, peak = memory_counters()
        self.send_fields(
            b"x",
            reason=reason,
            exit_code=os.WEXITSTATUS(status) if status is not None and os.WIFEXITED(status) else None,
            signal=os.WTERMSIG(status) if status is not None and os.WIFSIGNALED(status) else None,
            stdout=self.outputs[0].total,
            stderr=self.outputs[1].total,
            stdout_lines=self.outputs[0].lines,
            stderr_lines=self.outputs[1].lines,
            duration_ns=ended - self.started,
            cpu_us=int((usage.ru_utime + usage.ru_stime) * 1e6),
            peak_bytes=peak if peak is not None else usage.ru_maxrss * 1024,
            oom_kills=oom_kills,
        )
        if self.artifact_limits[0]:
            Artifacts(self, self.artifact_limits).send_all()
        os._exit(0)

    def send_rest_of_terminal(self):
        """Pass on what the terminal still holds, as the host side takes it; the number of seconds is bounded."""
        connection = self.connections.open.get(TERMINAL)
        give_up = time.monotonic() + KILL_SECONDS
        while connection and not connection.heard_all:
            if connection.credit:
                try:
                    connection.read(self)
                except BlockingIOError:
                    return  # somebody did not die, and holds it open
            elif select.select([0], [], [], max(0, give_up - time.monotonic()))[0]:
                self.hear()
            else:
                return

    def loop(self):
        while True:
            now = time.monotonic()
            if self.deadline is not None and now >= self.deadline:
                self.finish("deadline")
            ready = self.wait(now)
            if 0 in ready:
                self.hear()
            if self.woken in ready:
                drain(self.woken)
                self.reap()
                if self.started and self.wait_status is not None:
                    self.finish("exited")
            for output in self.outputs:
                if output.fd in ready:
                    output.read(self)
            self.connections.serve(ready)
            self.inputs = [i for i in self.inputs if i.fd not in ready or i.write()]

    def wait(self, now):
        """Sleep until there is something to do; return the descriptors that are ready."""
        poll = select.poll()
        poll.register(0, select.POLLIN)
        poll.register(self.woken, select.POLLIN)
        wake_at = [] if self.deadline is None else [self.deadline]
        if self.started:
            for output in self.outputs:
                if output.open and output.rest_until <= now:
                    poll.register(output.fd, select.POLLIN)
                elif output.open:
                    wake_at.append(output.rest_until)
            for source in self.inputs:
                poll.register(source.fd, select.POLLOUT)
            self.connections.register(poll)
        return dict(poll.poll(max(0, min(wake_at) - now) * 1000 if wake_at else None))


class Connections:
    """Bytes between the program and the host side beside its output: a terminal's, and those to the outside.

    The sandbox has no network: for connections to the outside this listens on its loopback alone, and they are
    carried, as frames, to the proxy on the host side. Neither side sends more than the other has said it will take
    (`credit`), so a slow reader slows the sender and grows no memory.
    """

    def __init__(self, agent):
        self.agent = agent
        self.listener = None
        self.open = {}
        self.number = TERMINAL

    def listen(self):
        import socket  # only here: it costs a waiting sandbox time and memory

        self.listener = socket.create_server(("127.0.0.1", PROXY_PORT), backlog=64)
        self.listener.setblocking(False)

    def add(self, number, end):
        self.open[number] = Connection(number, end)

    def register(self, poll):
        if self.listener and len(self.open) < MAX_CONNECTIONS:
            poll.register(self.listener, select.POLLIN)
        for connection in self.open.values():
            if connection.events():
                poll.register(connection.end, connection.events())

    def serve(self, ready):
        for connection in list(self.open.values()):
            events = ready.get(connection.end.fileno(), 0)
            try:
                if events & (select.POLLIN | select.POLLHUP | select.POLLERR):
                    connection.read(self.agent)
                if events & select.POLLOUT:
                    connection.write(self.agent)
            except BlockingIOError:
                continue
            except OSError:
                self.drop(connection, tell=True)
                continue
            if connection.is_over():
                self.drop(connection, tell=False)
        if self.listener and self.listener.fileno() in ready:
            try:
                accepted, _ = self.listener.accept()
            except OSError:
                return  # it gave up, or descriptors ran out: it will try again
            accepted.setblocking(False)
            self.number += 1
            self.add(self.number, accepted)
            self.agent.send(b"c", NUMBER.pack(self.number))

    def hear(self, kind, payload):
        """Take what the host side says to one connection; one that is gone already has nobody to tell."""
        (number,) = NUMBER.unpack_from(payload)
        connection = self.open.get(number)
        if connection is None:
            return
        if kind == b"W":
            connection.pending += payload[NUMBER.size :]
        elif kind == b"V":
            connection.credit += NUMBER.unpack_from(payload, NUMBER.size)[0]
        elif kind in (b"Q", b"X"):
            connection.told_all = True
            connection.heard_all = connection.heard_all or kind == b"X"
            if not connection.pending:
                connection.finish_writing()
            if connection.is_over():
                self.drop(connection, tell=False)

    def drop(self, connection, tell):
        del self.open[connection.number]
        connection.end.close()
        if tell:
            self.agent.send(b"k", NUMBER.pack(connection.number))


class Connection:
    """One connection: a socket of the program's, or its terminal."""

    def __init__(self, number, end):
        self.number = number
        self.end = end
        self.credit = WINDOW
        self.pending = bytearray()
        self.heard_all = False
        self.told_all = False

    def events(self):
        wanted = select.POLLIN if self.credit and not self.heard_all else 0
        return wanted | (select.POLLOUT if self.pending else 0)

    def is_over(self):
        return self.heard_all and self.told_all and not self.pending

    def read(self, agent):
        if self.heard_all or not self.credit:
            return
        data = self.end.recv(min(CHUNK - NUMBER.size, self.credit))
        if data:
            self.credit -= len(data)
            agent.send(b"w", NUMBER.pack(self.number) + data)
        else:
            self.heard_all = True
            agent.send(b"q", NUMBER.pack(self.number))

    def write(self, agent):
        written = self.end.send(self.pending)
        del self.pending[:written]
        agent.send(b"v", NUMBER.pack(self.number) + NUMBER.pack(written))
        if self.told_all and not self.pending:
            self.finish_writing()

    def finish_writing(self):
        try:
            self.end.shutdown(1)
        except OSError:
            self.heard_all = True


class Terminal:
    """A pseudo-terminal, whose other end is the program's; to `Connection` it looks like a socket.

    It takes part in nothing that the agent does with signals: the session that it controls is the program's.
    """

    def __init__(self, rows, columns):
        import termios  # only here: few runs have one

        self.termios = termios
        self.fd, self.program_end = os.openpty()
        os.set_blocking(self.fd, False)
        self.resize(rows, columns)

    def resize(self, rows, columns):
        fcntl.ioctl(self.fd, self.termios.TIOCSWINSZ, struct.pack("4H", rows, columns, 0, 0))

    def control(self):
        """Become the terminal of the session that calls, which can then be interrupted and control its jobs."""
        fcntl.ioctl(self.program_end, self.termios.TIOCSCTTY, 0)

    def fileno(self):
        return self.fd

    def recv(self, size):
        try:
            return os.read(self.fd, size)
        except BlockingIOError:
            raise
        except OSError:
            return b""  # nobody holds the other end any more

    def send(self, data):
        try:
            return os.write(self.fd, data)
        except BlockingIOError:
            raise
        except OSError:
            return len(data)  # nobody will read it

    def shutdown(self, _):
        """Nothing: there is no such thing as half a terminal."""

    def close(self):
        os.close(self.fd)


class Artifacts:
    """Sends every regular file of the working folder that is new or changed, once nothing can change it."""

    def __init__(self, agent, limits):
        self.agent = agent
        self.count_left, self.file_bytes, self.bytes_left = limits
        self.refused = 0

    def send_all(self):
        walked = 0
        for folder, path, name, status in walk(os.open(".", os.O_RDONLY)):
            walked += 1
            if walked > MAX_WALKED:
                self.refuse("walk_too_long", b"")
                break
            if self.is_old(folder, path, name, status):
                continue
            reason = self.reason_against(path, status) or self.send_file(folder, path, name, status.st_size)
            if reason:
                self.refuse(reason, path)
        self.agent.send_fields(b"z", refused=self.refused)

    def is_old(self, folder, path, name, status):
        """Tell whether this is what the run started with: a link to the workspace, the program, an input."""
        if stat.S_ISLNK(status.st_mode):
            return path in self.agent.links and os.readlink(name, dir_fd=folder) == self.agent.links[path]
        return path in self.agent.given and self.agent.given[path] == identity(status)

    def reason_against(self, path, status):
        if stat.S_ISLNK(status.st_mode):
            return "link"
        if stat.S_ISDIR(status.st_mode):
            return "too_deep"
        if not stat.S_ISREG(status.st_mode):
            return "not_a_file"
        if len(path) > MAX_PATH:
            return "path_too_long"
        if status.st_size > self.file_bytes:
            return "too_large"
        if not self.count_left:
            return "too_many"
        return "all_too_large" if status.st_size > self.bytes_left else None

    def refuse(self, reason, path):
        self.refused += 1
        if self.refused <= MAX_REFUSALS:
            self.agent.send(b"r", reason.encode() + b" " + path[:MAX_PATH])

    def send_file(self, folder, path, name, size):
        """Send one file; the reason where it cannot be read."""
        try:
            file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=folder)
        except OSError:
            return "unreadable"
        self.count_left -= 1
        self.bytes_left -= size
        self.agent.send(b"a", b"%d " % size + path)
        while size:
            data = os.read(file, min(CHUNK, size))
            if not data:
                os._exit(72)  # it shrank, though nobody is left to do that: nothing more can be believed
            self.agent.send(b"d", data)
            size -= len(data)
        os.close(file)
        return None


def warm_environment():
    """Return the environment of a waiting Python that imports modules while it waits, as our arguments name them.

    `site` imports a module of this name at start-up, wherever PYTHONPATH has it, before the program is opened. It
    takes itself off the path, out of the environment and, when all is imported, off the disk again; the program
    finds its modules imported, no more. They are frozen for the garbage collector, as they live to the end anyway:
    Python's last collections took 150 ms of a program's end to go through pandas, and take 20 now. The names of
    `__main__` are not, or what a program leaves in a cycle would never be finalised: a dict that is empty when all is
    collected is left out, until something is put into it again.
    """
    modules = [name for name in sys.argv[1:] if name != EGRESS]
    if not modules:
        return None
    os.mkdir(WARM, 0o700)
    with open(WARM + "/sitecustomize.py", "w") as warm:
        warm.write(WARM_UP % modules)
    return dict(os.environ, PYTHONPATH=WARM)


WARM_UP = """
import gc, importlib, os, sys
sys.path.remove(os.path.dirname(__file__))
sys.path_importer_cache.pop(os.path.dirname(__file__), None)
del os.environ["PYTHONPATH"]
silent = os.open(os.devnull, os.O_WRONLY)
streams = os.dup(1), os.dup(2)
os.dup2(silent, 1)
os.dup2(silent, 2)
for name in %r:
    try:
        importlib.import_module(name)
    except Exception:
        pass  # the program's own import will say what is wrong
os.dup2(streams[0], 1)
os.dup2(streams[1], 2)
for fd in (silent, *streams):
    os.close(fd)
for folder, _, names in os.walk(os.path.dirname(__file__), topdown=False):
    for name in names:
        os.unlink(os.path.join(folder, name))
    os.rmdir(folder)
original = sys.modules.pop(__name__)
try:
    importlib.import_module(__name__)  # the image's own, which ours stood before
except ImportError:
    sys.modules[__name__] = original
main = sys.modules["__main__"].__dict__
names = dict(main)
main.clear()
gc.collect()
if not gc.is_tracked(main):
    gc.freeze()
main.update(names)
del main, names
"""


def remove_folder(path):
    try:
        for entry in os.scandir(path):
            remove_folder(entry.path) if entry.is_dir(follow_symlinks=False) else os.unlink(entry.path)
        os.rmdir(path)
    except OSError:
        pass


def link_workspace():
    """Let each top-level entry of the workspace appear in the working folder; return names and targets."""
    try:
        names = sorted(os.listdir(os.fsencode(WORKSPACE)))[:MAX_LINKS]
    except OSError:
        return {}
    links = {name: os.fsencode(WORKSPACE) + b"/" + name for name in names}
    for name, target in links.items():
        os.symlink(target, name)
    return links


def walk(folder, prefix=b"", depth=1):
    """Yield folder descriptor, path, name and status of everything below; of folders, those too deep."""
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            name = os.fsencode(entry.name)
            status = entry.stat(follow_symlinks=False)
            if name == b"__pycache__":
                continue
            if stat.S_ISDIR(status.st_mode) and depth < MAX_DEPTH:
                try:
                    inner = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
                except OSError:
                    continue  # the program shut its own folder
                yield from walk(inner, prefix + name + b"/", depth + 1)
            else:
                yield folder, prefix + name, name, status
    os.close(folder)


def identity(status):
    """What tells whether a file is still the one it was."""
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


def first_program(*names):
    """Name the first of these programs that PATH has; the last one where it has none."""
    for name in names:
        for folder in os.get_exec_path():
            if os.access(os.path.join(folder, name), os.X_OK):
                return name
    return names[-1]


def set_dumpable(value):
    if ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, value, 0, 0, 0):
        os._exit(71)


def memory_counters():
    """Return how often the kernel killed for memory in here and the most bytes held; None unknown."""
    root = "/sys/fs/cgroup/"
    kills = counter(root + "memory.events", "oom_kill")
    if kills is None:
        kills = counter(root + "memory/memory.oom_control", "oom_kill")
    peak = counter(root + "memory.peak")
    if peak is None:
        peak = counter(root + "memory/memory.max_usage_in_bytes")
    return kills, peak


def counter(path, key=None):
    try:
        with open(path) as lines:
            for line in lines:
                words = line.split()
                if key is None or words[0] == key:
                    return int(words[-1])
    except (OSError, ValueError, IndexError):
        pass
    return None


def write_all(fd, data):
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def drain(fd):
    try:
        while os.read(fd, 512):
            pass
    except BlockingIOError:
        pass


def main():
    if os.getpid() != 1:
        # Killing "every other process" is only ours to do in a PID namespace of our own.
        sys.exit("the agent must be the first process of a container")
    agent = Agent()
    agent.prepare()
    set_dumpable(0)
    agent.send_fields(b"h", protocol=1, python="%d.%d.%d" % sys.version_info[:3])
    agent.loop()


main()
