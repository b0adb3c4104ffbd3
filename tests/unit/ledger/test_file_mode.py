"""The ledger file is for its user alone, whatever the umask says."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.migrate import upgrade
from tests.fixtures.ledgers import ADMIN, GRANT, TERMS, ask, open_ledger


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def test_the_ledger_and_what_sqlite_keeps_beside_it_are_private(tmp_path: Path, open_umask: None) -> None:
    (tmp_path / "plain").touch()
    assert stat.S_IMODE((tmp_path / "plain").stat().st_mode) == 0o666, "others could read what is made carelessly"
    url = f"sqlite:///{tmp_path / 'ledger.sqlite'}"
    upgrade(url)
    with open_ledger(url) as (_, ledger):
        ledger.open_account("shop", TERMS, GRANT, ADMIN)
        ledger.reserve(ask())
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.glob("ledger.sqlite*")}
    assert {"ledger.sqlite", "ledger.sqlite-wal", "ledger.sqlite-shm", "ledger.sqlite.owners"} == set(modes)
    owners = modes.pop("ledger.sqlite.owners")
    assert (owners, set(modes.values())) == (0o700, {0o600})
    with open_ledger(url) as (_, ledger):
        assert ledger.balance("shop").spent == (1, 2, 3), "opened again, it is the same"
