"""The `halftone` command: helpful, and a refusal is a sentence on standard error."""

import json
import shutil
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from service.app import open_books
from service.cli import main
from service.core.fitted import Basis, FittedBounds
from service.core.reach import Reach
from service.demo import customers
from service.settings import Settings

CATALOG = """
datasets:
  club:
    unit: member
    epsilon: "2"
    tables:
      members:
        source: {kind: parquet, path: members.parquet}
        private: true
        unit: {column: member}
        columns:
          age: {type: BIGINT, bounds: [0, %d]}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """A migrated data folder with one source file; nothing printed yet."""
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(tmp_path))
    (tmp_path / "sources").mkdir()
    rows = [{"member": i, "age": 20 + i % 50} for i in range(100)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "sources" / "members.parquet")
    assert main(["migrate"]) == 0
    capsys.readouterr()
    return tmp_path


def test_help_names_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for word in ("serve", "demo", "migrate", "key", "dataset", "apply", "budget", "ledger", "query", "selftest"):
        assert word in shown


def test_a_store_that_is_not_migrated_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(tmp_path))
    assert main(["key", "list"]) == 1
    assert "halftone migrate" in capsys.readouterr().err


def test_it_does_not_listen_to_others_without_a_key(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "--host", "0.0.0.0", "--port", "59123"]) == 1
    assert "no key yet" in capsys.readouterr().err


def test_an_unsafe_setting_stops_it_with_a_sentence(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_ENGINE_MEMORY", "all of it")
    assert main(["key", "list"]) == 1
    assert "HALFTONE_ENGINE_MEMORY: write a number" in capsys.readouterr().err


def test_keys_are_made_listed_and_revoked(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["key", "create", "--role", "admin", "--name", "Ada"]) == 0
    key = capsys.readouterr().out.strip()
    prefix = key.split("_")[1]
    assert main(["key", "list"]) == 0
    listed = capsys.readouterr().out
    assert prefix in listed
    assert key not in listed
    assert main(["key", "revoke", prefix]) == 1
    assert "last admin key" in capsys.readouterr().err
    assert main(["key", "create", "--role", "viewer", "--dataset", "nowhere"]) == 1


def test_a_catalog_file_is_applied_once_and_shows_what_it_changes(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = folder / "catalog.yaml"
    file.write_text(CATALOG % 100)
    assert main(["apply", str(file), "--yes"]) == 0
    assert '+  "unit": "member"' in capsys.readouterr().out
    assert main(["apply", str(file), "--yes"]) == 0
    assert capsys.readouterr().out == "Nothing to change.\n"
    file.write_text(CATALOG % 90)
    assert main(["apply", str(file)]) == 1, "not a terminal, not --yes: nothing is done"
    said = capsys.readouterr()
    assert '-        "100"' in said.out.replace("100\n", '"100"\n') or "100" in said.out
    assert "--yes" in said.err
    assert main(["apply", str(file), "--yes"]) == 0
    assert main(["dataset", "list"]) == 0
    assert "club" in capsys.readouterr().out
    assert main(["budget", "show", "club"]) == 0
    assert "granted epsilon 2" in capsys.readouterr().out
    assert main(["ledger", "verify"]) == 0
    capsys.readouterr()
    assert main(["ledger", "export"]) == 0
    head = json.loads(capsys.readouterr().out.splitlines()[-1])["head"]
    assert main(["ledger", "verify", "--head", head]) == 0
    assert main(["ledger", "verify", "--head", "f" * 64]) == 1, "a head that was kept must still occur"
    assert main(["budget", "grant", "club", "--epsilon", "1", "--reason", "half"]) == 0
    assert main(["budget", "grant", "club", "--epsilon", "5", "--reason", "too much"]) == 1


def test_a_file_that_can_not_be_read_is_said_so(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["apply", str(folder / "absent.yaml")]) == 1
    assert "can not be read" in capsys.readouterr().err


def test_a_query_without_a_service_says_that_nothing_answers(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_KEY", "ht_x_y")
    assert main(["query", "SELECT 1", "--url", "http://127.0.0.1:9"]) == 1
    assert "Nothing answers" in capsys.readouterr().err


def test_a_query_asks_where_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HALFTONE_KEY", "ht_x_y")
    monkeypatch.setenv("HALFTONE_URL", "http://127.0.0.1:7")
    assert main(["query", "SELECT 1"]) == 1
    assert "Nothing answers at http://127.0.0.1:7." in capsys.readouterr().err
    assert main(["query", "SELECT 1", "--accuracy", "fifty"]) == 1
    assert "OUTPUT=WIDTH" in capsys.readouterr().err


def test_a_store_that_can_not_be_reached_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("HALFTONE_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("HALFTONE_LEDGER_URL", "postgresql+psycopg://nobody@127.0.0.1:9/nothing")
    for command in (["migrate"], ["key", "list"]):
        assert main(command) == 1
        assert capsys.readouterr().err.startswith("The store of HALFTONE_LEDGER_URL can not be reached: ")


def test_a_grant_needs_an_amount_and_a_ration_is_a_share(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "catalog.yaml").write_text(CATALOG % 100)
    assert main(["apply", str(folder / "catalog.yaml"), "--yes"]) == 0
    assert main(["key", "create", "--role", "analyst", "--dataset", "club"]) == 0
    prefix = capsys.readouterr().out.split()[-1].split("_")[1]
    assert main(["budget", "grant", "club", "--reason", "nothing said"]) == 1
    assert "--epsilon" in capsys.readouterr().err
    assert main(["budget", "grant", "club", "--epsilon", "1.5", "--reason", "less"]) == 0
    assert capsys.readouterr().out == "Granted: epsilon 1.5 at delta 0.\n"
    assert main(["budget", "quota", "club", prefix, "0.25", "--reason", "fair"]) == 0
    assert main(["budget", "quota", "club", prefix, "none", "--reason", "enough"]) == 0
    assert capsys.readouterr().out == "Rationed.\nNo longer rationed.\n"
    assert main(["budget", "quota", "club", prefix, "2", "--reason", "more than all"]) == 1
    assert "at most 1" in capsys.readouterr().err


def test_a_catalog_file_that_does_not_fit_says_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "catalog.yaml"
    for text, said in (
        ("datasets: {club: {unit: member}}", "datasets.club.epsilon: is needed"),
        ("datasets: {Club: {unit: member, epsilon: 1}}", "datasets.Club: a name has lower-case letters"),
        ("datasets: {club: {unit: member, epsilon: 1, epsilonn: 2}}", "datasets.club.epsilonn: there is no such field"),
    ):
        file.write_text(text)
        assert main(["apply", str(file), "--yes"]) == 1
        assert said in capsys.readouterr().err


def test_a_reader_that_has_seen_enough_is_no_error(folder: Path) -> None:
    """As in `halftone … | head -1`."""
    command = [sys.executable, "-m", "service", "dataset", "list"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    assert process.stderr.read() == ""
    assert process.wait(60) == 141


def test_a_table_file_that_does_not_fit_says_where(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = folder / "table.json"
    for text, said in (
        ('{"source": {"kind": "csv"}}', "table.json: source.path: is needed"),
        ("{", "table.json: the file: Invalid JSON"),
    ):
        file.write_text(text)
        assert main(["dataset", "table", "club", "members", str(file)]) == 1
        assert said in capsys.readouterr().err


def test_defaults_are_fitted_anew_when_told(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "catalog.yaml").write_text(CATALOG % 120)
    assert main(["apply", str(folder / "catalog.yaml"), "--yes"]) == 0
    with pytest.raises(SystemExit):
        main(["dataset", "refit", "club"])  # without a reason
    capsys.readouterr()
    assert main(["dataset", "refit", "club", "--reason", "profiled again"]) == 0
    assert capsys.readouterr().out.startswith("Nothing changed")
    books = open_books(Settings(data_dir=folder))
    try:
        used = {Basis(Reach("members"), 1): FittedBounds(64, 5, ("q_profile",))}
        keep = books.catalog.kept_bounds.keeping("club", used)
        assert keep is not None
        books.store.write(keep)
    finally:
        books.close()
    assert main(["dataset", "refit", "club", "--reason", "there is no profile"]) == 0
    assert "members" in capsys.readouterr().out


def test_a_refresh_says_what_it_takes_away_and_why_copies_are_there(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "catalog.yaml").write_text(CATALOG % 100)
    assert main(["apply", str(folder / "catalog.yaml"), "--yes"]) == 0
    capsys.readouterr()
    assert main(["dataset", "refresh", "club", "members"]) == 0
    told = capsys.readouterr().out
    assert told.startswith("  Payable again after this import of members: 0 stored answers.\n  members: ready.")
    shutil.copy(folder / "sources" / "members.parquet", folder / "sources" / "copy.parquet")
    table = {"source": {"kind": "parquet", "path": "copy.parquet"}, "private": True, "unit": {"column": "member"}}
    (folder / "table.json").write_text(json.dumps(table))
    (folder / "other.json").write_text('{"unit": "member", "epsilon": "1"}')
    assert main(["dataset", "put", "other", str(folder / "other.json")]) == 0
    assert main(["dataset", "table", "other", "members", str(folder / "table.json")]) == 1
    assert "reason" in capsys.readouterr().err
    given = ["dataset", "table", "other", "members", str(folder / "table.json"), "--reason"]
    assert main([*given, "a\x00b"]) == 1
    assert capsys.readouterr().err.startswith("--reason: ")
    assert main([*given, "a second promise, to the same people"]) == 0
    assert main(["dataset", "refresh", "other", "members", "--reason", "still so"]) == 0
    with closing(open_books(Settings(data_dir=folder))) as books:
        assert books.catalog.table_declarations("other")["members"].reason == "still so"
    assert main(["dataset", "refresh", "club", "nothing"]) == 1


def test_the_demo_data_is_the_same_every_time() -> None:
    assert customers().equals(customers())
    assert customers().num_rows == 60_000


def test_make_run_passes_its_port_on() -> None:
    root = Path(__file__).parent.parent.parent
    done = subprocess.run(["make", "-n", "run", "PORT=9123"], cwd=root, capture_output=True, text=True, check=True)
    assert "halftone demo --port 9123" in done.stdout
