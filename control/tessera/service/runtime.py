# SPDX-License-Identifier: Apache-2.0
"""The runtime folder: who may use it, and which one controller does."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
from pathlib import Path

from tessera import protocol

SOCKET_NAME = "controller.sock"
_FLOCK = struct.Struct("hhqqi")  # struct flock: type, whence, start, length, process


class RuntimeFolderError(Exception):
    """The folder cannot be used; the message says what to do."""


class AlreadyRunningError(Exception):
    """Another controller holds the lock."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        super().__init__(f"a controller is already running (process {pid})")


def socket_path(folder: Path) -> Path:
    return folder / SOCKET_NAME


def log_path(folder: Path) -> Path:
    return folder / "controller.log"


def prepare(folder: Path) -> None:
    """Makes the folder, for this user alone. Raises RuntimeFolderError."""
    longest = folder / "worker-15.sock"
    if len(os.fsencode(longest)) >= protocol.constant("TS_PATH_BYTES"):
        raise RuntimeFolderError(
            f"{folder} is too long a path for sockets: set TESSERA_RUNTIME_DIR to a shorter one"
        )
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        info = folder.lstat()
    except OSError as error:
        raise RuntimeFolderError(
            f"{folder} cannot be made ({error.strerror}): set TESSERA_RUNTIME_DIR to a folder "
            "that you can write to"
        ) from None
    if not stat.S_ISDIR(info.st_mode) or info.st_uid != os.getuid():
        raise RuntimeFolderError(
            f"{folder} is not a folder of yours: set TESSERA_RUNTIME_DIR to one that is"
        )
    if info.st_mode & 0o077:
        # Made by something else, such as a shell: ours to close, and empty of secrets until now.
        try:
            folder.chmod(0o700)
        except OSError as error:
            raise RuntimeFolderError(
                f"others may enter {folder}, and that cannot be changed: {error.strerror}"
            ) from None


class Lock:
    """Held by the one controller of a folder, until it closes it or ends.

    A record lock: unlike with flock, no child process can inherit it and outlive its owner.
    """

    def __init__(self, folder: Path) -> None:
        """Raises AlreadyRunningError, RuntimeFolderError."""
        path = folder / "controller.lock"
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError as error:
            raise RuntimeFolderError(f"{path}: {error.strerror}") from None
        try:
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pid = _read_pid(self._fd)
            os.close(self._fd)
            raise AlreadyRunningError(pid) from None
        try:
            os.ftruncate(self._fd, 0)
            os.pwrite(self._fd, f"{os.getpid()}\n".encode(), 0)
        except OSError as error:
            os.close(self._fd)
            raise RuntimeFolderError(
                f"{path} cannot be written ({error.strerror}): make room there, or set "
                "TESSERA_RUNTIME_DIR to a folder with room"
            ) from None

    def close(self) -> None:
        os.close(self._fd)


def _read_pid(fd: int) -> int:
    text = os.pread(fd, 32, 0).strip()
    return int(text) if text.isdigit() else 0


def running_pid(folder: Path) -> int | None:
    """The process that holds the lock; None when no controller runs there."""
    path = folder / "controller.lock"
    try:
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        # Asks, and takes nothing: a controller that starts just now must find the lock free.
        wanted = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, _, _, _, pid = _FLOCK.unpack(fcntl.fcntl(fd, fcntl.F_GETLK, wanted))
    except OSError:
        return None
    finally:
        os.close(fd)
    return None if kind == fcntl.F_UNLCK else int(pid)
