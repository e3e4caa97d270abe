"""Tests of which user the embedded server runs as, and of which user creates its cluster."""

from __future__ import annotations

import os
import pwd
from types import SimpleNamespace

import pytest

from backend.domain.errors import HostError
from backend.store.postgres import account
from backend.store.postgres.account import PRIVATE_UIDS, Account, maker_account, server_account

_SERVER = Account(PRIVATE_UIDS[0], PRIVATE_UIDS[0])


@pytest.fixture
def machine(monkeypatch):
    """Return a machine on which we are root: its users by name, and the users that have a process."""
    made = SimpleNamespace(users={"root": 0, "nobody": 65534}, running={0}, owner=None)

    def getpwall():
        return [SimpleNamespace(pw_name=name, pw_uid=uid, pw_gid=uid) for name, uid in made.users.items()]

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(pwd, "getpwall", getpwall)
    monkeypatch.setattr(account, "_running_uids", lambda: made.running)
    return made


def _data(owner):
    return SimpleNamespace(exists=lambda: owner is not None, stat=lambda: SimpleNamespace(st_uid=owner))


def test_without_root_the_server_and_its_maker_are_our_own_user(monkeypatch, tmp_path):
    monkeypatch.setattr(os, "geteuid", lambda: 1234)

    found = server_account(tmp_path)

    assert (found.uid, found.is_another, found.identity()) == (1234, False, {})
    assert maker_account(found) == found


def test_a_new_cluster_gets_a_user_id_that_has_no_name_and_no_process(machine):
    machine.users["taken"] = PRIVATE_UIDS[0]
    machine.running |= set(PRIVATE_UIDS[1:-1])

    assert server_account(_data(None)) == Account(PRIVATE_UIDS[-1], PRIVATE_UIDS[-1])


def test_a_cluster_keeps_its_user_unless_that_is_not_private(machine):
    kept = PRIVATE_UIDS[5]
    machine.running |= set(PRIVATE_UIDS) - {PRIVATE_UIDS[7]}

    assert server_account(_data(kept)).uid == kept
    assert server_account(_data(65534)).uid == server_account(_data(0)).uid == PRIVATE_UIDS[7]
    machine.users["meanwhile"] = kept
    assert server_account(_data(kept)).uid == PRIVATE_UIDS[7]


def test_if_every_private_user_id_is_in_use_the_start_is_refused(machine):
    machine.running |= set(PRIVATE_UIDS)

    with pytest.raises(HostError, match="is in use; run as another user than root"):
        server_account(_data(None))


def test_a_cluster_is_created_by_an_idle_system_user_and_by_nobody_only_if_there_is_no_other(machine):
    machine.users |= {"person": 1000, "daemon": 1, "games": 5}
    machine.running |= {1}

    assert maker_account(_SERVER).uid == 5
    machine.running |= {5}
    assert maker_account(_SERVER).uid == 1000
    machine.users.pop("person")
    assert maker_account(_SERVER).uid == 65534
    machine.running |= {65534}
    with pytest.raises(HostError, match="add a system user"):
        maker_account(_SERVER)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="needs /proc")
def test_our_own_user_has_a_process():
    assert os.geteuid() in account._running_uids()
