"""Processes on this machine, each with its own interpreter; one that dies is replaced, and does its task again."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import suppress
from typing import Any, BinaryIO, Final, Self, final

from dpvb.cluster.engine import Answered, Reduction, added, answered, opened, packed, shared_out
from dpvb.guards.errors import ParameterError, check_integer

# How often one task is tried: its process may be killed by something that has nothing to do with it.
_ATTEMPTS = 4
# Bytes that say how long a message is.
_HEAD = 8
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
# The current folder may be that of the data, and its files are not trusted code: it is on the path only if this
# process names it by its whole name, as it does for a script of that folder.
_MAIN = "import sys; sys.path[:] = sys.argv[1:]; from dpvb.cluster.local import main; main()"


@final
class LocalPool:
    """A pool of processes for `dpvb.Run(cluster=pool)`; `with` ends them.

    They read private data and are inside the wall: they talk only to this process, through pipes, write nothing, and
    end with it. The machine's cores are shared out among them.

    Args:
        num_workers: number of processes, at least 1; public.

    Attributes:
        num_workers: number of processes.

    Raises:
        ParameterError: for another number.
    """

    def __init__(self, num_workers: int = 2) -> None:
        self.num_workers: Final = check_integer("num_workers", num_workers, low=1, high=1024)
        self._dealt: list[tuple[int, ...]] = []
        self._parts: Sequence[Any] = ()
        self._model = packed(None)
        self._interrupted = False
        self._processes = [self._started() for _ in range(self.num_workers)]

    def __repr__(self) -> str:
        return f"LocalPool({self.num_workers})"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._processes:
            _end(process)
        self._processes = []

    @property
    def process_ids(self) -> list[int]:
        """The processes that are at work now; public."""
        return [process.pid for process in self._processes]

    def hold(self, parts: Sequence[Any], model: object) -> None:
        """Bring each part to its process, and the model to all."""
        if not self._processes or self._interrupted:
            raise ParameterError(
                "This pool has ended: its `with` block is over, or it was interrupted. Make a new one."
            )
        self._parts, self._dealt = parts, shared_out(len(parts), self.num_workers)
        self._model = packed(model)
        self._ask_all([self._held(worker) for worker in range(self.num_workers)], lambda answer: None)

    def run(self, reduction: Reduction, told: bytes, own: Sequence[Any], key: str) -> Answered:
        """Have every process do a task on its parts; an answer is added when it has come, and then forgotten."""
        total: Answered | None = None

        def take(answer: Any) -> None:
            nonlocal total
            one = answer if isinstance(answer, Answered) else Answered((), None)
            total = one if total is None else added(reduction, total, one)

        requests = [pickle.dumps((reduction, told, {part: own[part] for part in dealt})) for dealt in self._dealt]
        self._ask_all(requests, take)
        return total or Answered((), None)

    def close(self) -> None:
        """Let go of all parts; the processes stay."""
        if self._dealt and self._processes and not self._interrupted:
            self.hold((), None)

    def _held(self, worker: int) -> bytes:
        """The request to hold what a process is to hold."""
        dealt = self._dealt[worker] if worker < len(self._dealt) else ()
        return pickle.dumps((None, self._model, {part: packed(self._parts[part]) for part in dealt}))

    def _ask_all(self, requests: Sequence[bytes], take: Callable[[Any], None]) -> None:
        """Ask as many processes at once as there are requests; this thread takes their answers, one at a time."""
        with ThreadPoolExecutor(self.num_workers) as threads:
            try:
                asked = {threads.submit(self._ask, worker, request): worker for worker, request in enumerate(requests)}
                left = dict.fromkeys(asked.values(), _ATTEMPTS)
                while asked:
                    answered = next(as_completed(asked))
                    worker = asked.pop(answered)
                    left[worker] -= 1
                    try:
                        answer = unpickled(self._processes[worker].stdout, answered.result())
                    except Exception:  # It died, or its answer is not valid.
                        if left[worker]:
                            asked[threads.submit(self._ask_another, worker, requests[worker])] = worker
                            continue
                        answer = None
                    take(answer)
                    del answer  # Before the next one is read: memory holds a total and one answer.
            except BaseException:  # Interrupted: no process may continue, since no answer is awaited.
                self._interrupted = True
                for process in self._processes:
                    process.kill()
                raise

    def _ask(self, worker: int, request: bytes) -> int:
        """Ask one process, and return the length of its answer."""
        process = self._processes[worker]
        send(process.stdin, request)
        return announced(process.stdout)

    def _ask_another(self, worker: int, request: bytes) -> int:
        """Ask a process that takes the place of one that died or gave no answer."""
        _end(self._processes[worker])
        if not self._interrupted:
            self._processes[worker] = self._started()
            receive(self._processes[worker].stdout, self._ask(worker, self._held(worker)))
        return self._ask(worker, request)

    def _started(self) -> subprocess.Popen[bytes]:
        """A fresh process: it knows nothing of this one's memory, and its own session is spared this one's signals."""
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        share = max(1, cores // self.num_workers)
        threads = {name: str(min(share, _whole(os.environ.get(name), share))) for name in _THREADS}
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _MAIN, *filter(os.path.isabs, sys.path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=environment | threads,
            start_new_session=True,
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    """End a process and give back what it had."""
    process.kill()
    for pipe in (process.stdin, process.stdout):
        with suppress(OSError):
            if pipe is not None:
                pipe.close()
    process.wait()


def _whole(text: str | None, default: int) -> int:
    return int(text) if text is not None and text.isdigit() and int(text) > 0 else default


# The other end of the pipes


def send(pipe: Any, message: bytes) -> None:
    """Write one message.

    Raises:
        OSError: if the pipe is closed at the other end.
    """
    pipe.write(len(message).to_bytes(_HEAD, "little"))
    pipe.write(message)
    pipe.flush()


def announced(pipe: Any) -> int:
    """Wait for a message, and return its length.

    Raises:
        EOFError: if the pipe has ended.
    """
    head = pipe.read(_HEAD)
    if len(head) < _HEAD:
        raise EOFError
    return int.from_bytes(head, "little")


def receive(pipe: Any, length: int) -> bytes:
    """Read the message that was announced.

    Raises:
        EOFError: if the pipe has ended.
    """
    message: bytes = pipe.read(length)
    if len(message) < length:
        raise EOFError
    return message


class _Message:
    """A message as it arrives: arrays are read into their places, so that memory holds them once.

    Args:
        pipe: where it comes from.
        length: its number of bytes.
    """

    def __init__(self, pipe: Any, length: int) -> None:
        self._pipe, self.left = pipe, length

    def read(self, size: int) -> bytes:
        self.left -= size
        return receive(self._pipe, size) if self.left >= 0 else b""

    def readinto(self, buffer: Any) -> int:
        self.left -= len(buffer)
        number: int = self._pipe.readinto(buffer) if self.left >= 0 else 0
        return number

    def readline(self) -> bytes:  # pickle asks for this method; the protocol has no lines.
        return b""


def unpickled(pipe: Any, length: int) -> Any:
    """Read and unpickle the message that was announced.

    Raises:
        EOFError: if the pipe has ended, or the message has another length.
    """
    message = _Message(pipe, length)
    answer = pickle.load(message)
    if message.left != 0:
        raise EOFError
    return answer


def serve(requests: BinaryIO, answers: BinaryIO) -> None:
    """Hold a model and parts, and answer for them until the pipe ends."""
    parts: dict[int, Any] = {}
    model: Any = None
    while True:
        try:
            reduction, told, own = pickle.loads(receive(requests, announced(requests)))
        except EOFError:
            return
        if reduction is None:
            parts, model = {}, opened(told)
            parts = {part: opened(data) for part, data in own.items()}
            send(answers, pickle.dumps(True))
        else:
            send(answers, pickle.dumps(answered(reduction, told, own, parts, model), protocol=5))


def main() -> None:
    """Serve on standard input and output, which nothing else in this process sees: a model's prints go nowhere."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    with requests, answers:
        serve(requests, answers)
