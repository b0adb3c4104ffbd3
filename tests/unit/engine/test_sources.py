"""Which paths an admin may import from."""

import os
from pathlib import Path

import pytest

from service.core.errors import SourceRefused
from service.engine.sources import Source, find_files


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "sources"
    (root / "shop" / "deep").mkdir(parents=True)
    for name in ("shop/a.parquet", "shop/b.parquet", "shop/deep/c.parquet", "shop/d.csv", "shop/e.duckdb"):
        (root / name).write_text("x")
    (tmp_path / "secret.parquet").write_text("x")
    return root


def names(files: tuple[Path, ...]) -> list[str]:
    return [file.name for file in files]


def test_a_file_a_pattern_and_a_folder_are_found(root: Path) -> None:
    assert names(find_files(Source("parquet", "shop/a.parquet"), [root])) == ["a.parquet"]
    assert names(find_files(Source("parquet", "shop/*.parquet"), [root])) == ["a.parquet", "b.parquet"]
    assert names(find_files(Source("parquet", "shop"), [root])) == ["a.parquet", "b.parquet", "c.parquet"]
    assert names(find_files(Source("parquet", "shop/**/*.parquet"), [root])) == ["a.parquet", "b.parquet", "c.parquet"]
    assert names(find_files(Source("csv", "shop"), [root])) == ["d.csv"]
    assert names(find_files(Source("duckdb", "shop/e.duckdb", "t"), [root])) == ["e.duckdb"]


def test_the_first_folder_that_has_it_is_read(root: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    (other / "only.csv").write_text("x")
    assert names(find_files(Source("csv", "only.csv"), [root, other, tmp_path / "missing"])) == ["only.csv"]


@pytest.mark.parametrize(
    "path",
    [
        "",
        "nothing.parquet",
        "shop/*.nothing",
        "../secret.parquet",
        "shop/../../secret.parquet",
        "shop/..",
        "/etc/passwd",
        "~/x.parquet",
        "file:///etc/passwd",
        "https://example.org/x.parquet",
        "s3://bucket/x.parquet",
        "hf://datasets/x",
        "\\\\host\\share",
        "shop/a.parquet\0.csv",
        "shop/a\nb.parquet",
        "a" * 2000,
    ],
)
def test_what_leads_elsewhere_is_refused(root: Path, path: str) -> None:
    with pytest.raises(SourceRefused):
        find_files(Source("parquet", path), [root])


def test_links_that_lead_out_are_refused_in_every_form(root: Path, tmp_path: Path) -> None:
    (root / "link.parquet").symlink_to(tmp_path / "secret.parquet")
    (root / "out").symlink_to(tmp_path)
    for path in ("link.parquet", "*.parquet", "out/secret.parquet", "out/*.parquet"):
        with pytest.raises(SourceRefused):
            find_files(Source("parquet", path), [root])


def test_links_that_stay_inside_are_followed(root: Path) -> None:
    (root / "current.parquet").symlink_to(root / "shop" / "b.parquet")
    assert names(find_files(Source("parquet", "current.parquet"), [root])) == ["b.parquet"]


def test_a_dangling_link_is_refused(root: Path) -> None:
    (root / "gone.parquet").symlink_to(root / "nothing.parquet")
    with pytest.raises(SourceRefused):
        find_files(Source("parquet", "gone.parquet"), [root])


def test_pipes_and_devices_are_no_sources(root: Path) -> None:
    os.mkfifo(root / "pipe.parquet")
    with pytest.raises(SourceRefused):
        find_files(Source("parquet", "pipe.parquet"), [root])


def test_a_root_may_itself_be_a_link(root: Path, tmp_path: Path) -> None:
    linked = tmp_path / "linked"
    linked.symlink_to(root)
    assert names(find_files(Source("parquet", "shop/a.parquet"), [linked])) == ["a.parquet"]


def test_a_duckdb_source_needs_one_file_and_a_table(root: Path) -> None:
    for source in (
        Source("duckdb", "shop/e.duckdb"),
        Source("duckdb", "shop/*.duckdb", "t"),
        Source("duckdb", "shop", "t"),
    ):
        with pytest.raises(SourceRefused):
            find_files(source, [root])
