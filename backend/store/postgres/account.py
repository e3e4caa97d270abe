"""Chooses the user that runs the PostgreSQL server of ``up``. PostgreSQL refuses to run as root.

If we are not root, it is our own user. If we are root, it is a user id that has no name and no other process; the
cluster keeps this user id. It is not ``nobody``, because every other program of ``nobody`` could end the server, and
could read the password and the data. Through ``/proc`` it could do so even in folders that it cannot enter.

Only ``initdb`` insists on a user with a name. It runs as a system user that has no process, and its files are then
given to the server's user. No user is created, and no file outside the folder is changed.
"""

from __future__ import annotations

import os
import pwd
import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypedDict

from backend.domain.errors import HostError

PRIVATE_UIDS: Final = range(60706, 61184)
"""User ids that distributions and systemd leave unused, and that user namespaces usually contain."""
_SYSTEM_UID_MAX: Final = 999


class ProcessIdentity(TypedDict, total=False):
    """The arguments with which ``subprocess`` changes the user of a child."""

    user: int
    group: int
    extra_groups: list[int]


@dataclass(frozen=True, slots=True)
class Account:
    """The user that runs a child process."""

    uid: int
    gid: int

    @property
    def is_another(self) -> bool:
        """Whether this is not the user of this process."""
        return self.uid != os.geteuid()

    def identity(self) -> ProcessIdentity:
        """Return the arguments that start a child as this user."""
        if not self.is_another:
            return {}
        return {"user": self.uid, "group": self.gid, "extra_groups": []}

    def own(self, path: Path, mode: int) -> None:
        """Give one file or folder to this user."""
        if self.is_another:
            os.chown(path, self.uid, self.gid)
        path.chmod(mode)

    def own_tree(self, folder: Path) -> None:
        """Give a folder with its content to this user.

        The folder itself comes last. So if it belongs to this user, its whole content does.
        """
        if not self.is_another:
            return
        for place, folders, files in os.walk(folder, topdown=False):
            for name in (*folders, *files):
                os.chown(Path(place) / name, self.uid, self.gid, follow_symlinks=False)
        os.chown(folder, self.uid, self.gid)


def server_account(data: Path) -> Account:
    """Return the user that runs the server of the cluster in ``data``. The cluster may not exist yet.

    Raises:
        HostError: we are root, and every private user id is in use.
    """
    if os.geteuid() != 0:
        return Account(os.geteuid(), os.getegid())
    owner = data.stat().st_uid if data.exists() else 0
    named = {entry.pw_uid for entry in pwd.getpwall()}
    if owner in PRIVATE_UIDS and owner not in named:
        return Account(owner, owner)
    free = sorted(set(PRIVATE_UIDS) - named - _running_uids())
    if not free:
        what = f"every user id from {PRIVATE_UIDS[0]} to {PRIVATE_UIDS[-1]} is in use"
        raise HostError(what, fix="run as another user than root")
    uid = secrets.choice(free)
    return Account(uid, uid)


def maker_account(server: Account) -> Account:
    """Return the user that runs ``initdb``: the server's user, or a user with a name and without a process.

    Raises:
        HostError: there is no such user.
    """
    if not server.is_another:
        return server
    running = _running_uids()
    # `nobody` comes last: of all users it is the most likely to get a process in the meantime.
    system = [e for e in pwd.getpwall() if e.pw_uid > 0 and e.pw_uid not in running]
    idle = min(system, key=lambda e: (e.pw_uid > _SYSTEM_UID_MAX, e.pw_name == "nobody", e.pw_uid), default=None)
    if idle is None:
        what = "PostgreSQL creates its data folder only as a named user, and every user but root has a process"
        raise HostError(what, fix="add a system user, or run as another user than root")
    return Account(idle.pw_uid, idle.pw_gid)


def _running_uids() -> set[int]:
    """Return the real, effective, saved and file-system user ids of all processes; none without ``/proc``."""
    running_uids: set[int] = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            lines = status.read_text(errors="replace").splitlines()
        except OSError:
            # The process has ended.
            continue
        running_uids.update(int(uid) for line in lines if line.startswith("Uid:") for uid in line.split()[1:])
    return running_uids
