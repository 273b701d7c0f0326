"""The program on a terminal: forks of one process that has imported what it needs, each with a terminal of its own."""

from __future__ import annotations

import atexit
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
from functools import cache
from typing import Any

#: Waits for calls, and forks for each: arguments, folder and environment in JSON, and three files, its streams.
WAITING = """
import importlib, json, os, socket, sys
sys.path[:] = json.loads(sys.argv[2])
from dpvb.cli import app
for name in ("dpvb.runs.run", "dpvb.data.documents", "dpvb.cli.check_data", "scipy.stats"):
    importlib.import_module(name)
calls = socket.socket(fileno=int(sys.argv[1]))
while True:
    data, files, _, _ = socket.recv_fds(calls, 2**16, 3)
    if not data:
        break
    if process := os.fork():
        for file in files:
            os.close(file)
        calls.send(str(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])).encode())
        continue
    calls.close()
    os.setsid()
    for place, file in enumerate(files):
        os.dup2(file, place)
        os.close(file)
    call = json.loads(data)
    os.chdir(call["folder"])
    os.environ.clear()
    os.environ.update(call["environment"])
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, "w"), open(2, "w", buffering=1)
    sys.argv = ["-c", *call["args"]]
    app()
    break
"""


@cache
def _waiting() -> socket.socket:
    """What the calls are sent to; the process ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-c", WAITING, str(theirs.fileno()), json.dumps(sys.path)]
    process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
    theirs.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


def on_terminal(*args: object, said: str = "yes\n", **streams: Any) -> tuple[int, str]:
    """Call dpvb on a pseudo-terminal on which somebody types; its exit status, and what the terminal shows.

    Args:
        args: of the command line.
        said: what is typed.
        streams: files in place of the terminal, by `stdin`, `stdout` or `stderr`.
    """
    waiting = _waiting()
    ours, theirs = pty.openpty()
    files = [streams[name].fileno() if name in streams else theirs for name in ("stdin", "stdout", "stderr")]
    call = {"args": [*map(str, args)], "folder": os.getcwd(), "environment": dict(os.environ)}
    socket.send_fds(waiting, [json.dumps(call).encode()], files)
    os.close(theirs)
    os.write(ours, said.encode())
    shown, end = b"", time.monotonic() + 120
    while time.monotonic() < end:
        if not select.select([ours], [], [], 1)[0]:
            continue
        try:
            piece = os.read(ours, 2**16)
        except OSError:  # The other end is closed.
            break
        if not piece:
            break
        shown += piece
    code = int(waiting.recv(100))
    os.close(ours)
    return code, re.sub(r"\x1b\[[0-9;]*m", "", shown.decode()).replace("\r\n", "\n")
