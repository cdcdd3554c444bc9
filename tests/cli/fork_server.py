"""A process that has loaded Tidings and forks itself for each command, so that a command starts at once.

The forked process is the command: it has its own standard streams, environment, directory and umask, gets signals, and
ends as an interpreter ends. Only the loading of modules is missing; tests about that start the installed script.
"""

import asyncio
import atexit
import gc
import importlib
import json
import os
import signal
import socket
import subprocess
import sys
from asyncio.subprocess import PIPE
from contextlib import suppress
from pathlib import Path

_LONGEST_REQUEST = 1 << 20


class Command:
    """A running command, with the methods of `asyncio.subprocess.Process` that tests use."""

    def __init__(self, pid: int, control: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self.given: int | None = None
        self.stdout: asyncio.StreamReader
        self.stderr: asyncio.StreamReader
        self._ended = asyncio.create_task(self._wait_for_end(control, writer))

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def wait(self) -> int:
        return await asyncio.shield(self._ended)

    async def communicate(self, given: bytes | None = None) -> tuple[bytes, bytes]:
        """Write to standard input, read both outputs to their ends, and wait for the end."""
        if self.given is not None:
            await asyncio.to_thread(_write_pipe, self.given, given or b"")
            self.given = None
        out, err, _ = await asyncio.gather(self.stdout.read(), self.stderr.read(), self.wait())
        return out, err

    async def _wait_for_end(self, control: asyncio.StreamReader, writer: asyncio.StreamWriter) -> int:
        self.returncode = os.waitstatus_to_exitcode(int(await control.readline()))
        writer.close()
        return self.returncode


class ForkServer:
    """The test process's end. One server serves all commands of a test process, and ends with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            # By its path, as a script is: a module's name would become the name of the command.
            words = [sys.executable, "-P", __file__, str(theirs.fileno())]
            nothing = subprocess.DEVNULL
            self._process = subprocess.Popen(words, pass_fds=[theirs.fileno()], stdin=nothing, stdout=nothing)
        atexit.register(self.close)

    def close(self) -> None:
        self._socket.close()
        self._process.wait()

    async def start(
        self, *arguments: str, folder: Path, environment: dict[str, str], stdin: int = subprocess.DEVNULL
    ) -> Command:
        """Start `tidings ARGUMENTS`. `stdin` is PIPE, DEVNULL or a file descriptor."""
        control, control_end = socket.socketpair()
        out, out_end = os.pipe()
        err, err_end = os.pipe()
        given, stdin_end = _open_stdin(stdin)
        umask = os.umask(0)
        os.umask(umask)
        request = {"arguments": arguments, "folder": str(folder), "environment": environment, "umask": umask}
        ends = [stdin_end, out_end, err_end, control_end.detach()]
        try:
            await asyncio.to_thread(socket.send_fds, self._socket, [json.dumps(request).encode()], ends)
        finally:
            for end in ends:
                os.close(end)
        control.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=control)
        command = Command(int(await reader.readline()), reader, writer)
        command.stdout, command.stderr = await _read_pipe(out), await _read_pipe(err)
        command.given = given
        return command


def _open_stdin(stdin: int) -> tuple[int | None, int]:
    """The writing end, if there is one, and what the command reads."""
    if stdin == PIPE:
        end, given = os.pipe()
        return given, end
    return None, os.open(os.devnull, os.O_RDONLY) if stdin == subprocess.DEVNULL else os.dup(stdin)


async def _read_pipe(descriptor: int) -> asyncio.StreamReader:
    reader = asyncio.StreamReader()
    file = os.fdopen(descriptor, "rb", buffering=0)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), file)
    return reader


def _write_pipe(descriptor: int, content: bytes) -> None:
    with suppress(BrokenPipeError), os.fdopen(descriptor, "wb") as file:
        file.write(content)


def accept_commands(requests: socket.socket) -> None:
    """Return in a new process for each command, which is then that command; in this one, when the tests have ended."""
    while True:
        request, ends, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, 4)
        if not request:
            sys.exit()
        if os.fork() == 0:
            break
        for end in ends:
            os.close(end)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    requests.close()
    *streams, control = ends
    if pid := os.fork():
        # This process waits for the command and tells how it ended.
        for end in streams:
            os.close(end)
        os.write(control, f"{pid}\n".encode())
        os.write(control, f"{os.waitpid(pid, 0)[1]}\n".encode())
        os._exit(0)
    os.close(control)
    _become_command(json.loads(request), streams)


def _become_command(request: dict[str, object], streams: list[int]) -> None:
    for number, end in enumerate(streams):
        os.dup2(end, number)
        os.close(end)
    # A session of its own: without a terminal there, a command asks where its standard input is.
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.chdir(str(request["folder"]))
    os.umask(int(str(request["umask"])))
    os.environ.clear()
    os.environ.update(dict(request["environment"]))  # type: ignore[call-overload]
    sys.path[:0] = [
        each for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each and each not in sys.path
    ]
    sys.argv = ["tidings", *list(request["arguments"])]  # type: ignore[call-overload]


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    # Commands load these when they need them.
    for name in ("tidings.collect.run.jobs", "tidings.web.service", "tidings.sandbox.bundle"):
        importlib.import_module(name)
    from tidings.cli.main import main, make_app

    make_app()
    gc.freeze()
    accept_commands(socket.socket(fileno=int(sys.argv[1])))
    main()
