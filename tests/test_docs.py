"""Docs and code agree: every setting, error code, endpoint and invariant is written down, and nothing else is."""

import re
import textwrap
from pathlib import Path

import pytest
from pydantic_core import PydanticUndefined

from service.api.asks import ask_of
from service.api.json_body import read_exact
from service.api.problems import HTTP_CODES
from service.api.requests import QueryWire
from service.catalog.apply import read_catalog
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.declared_budget import budget_of
from service.core import errors
from service.core.errors import ServiceError
from service.settings import Settings
from tests.fixtures.service import open_house

ROOT = Path(__file__).parent.parent
STATED = re.compile(r"Invariant ([A-Z]\d):")
LINK = re.compile(r"\]\((?!https?:)([^)#]+)")


def doc(name: str) -> str:
    return (ROOT / "docs" / name).read_text()


def codes() -> set[str]:
    own = {kind.code for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ServiceError)
           and kind is not ServiceError}  # fmt: skip
    return own | {code for code, _, _ in HTTP_CODES.values()} | {"internal-error"}


def test_every_setting_has_a_heading_with_its_default_and_no_other_has() -> None:
    headed = dict(re.findall(r"^#### (HALFTONE_\w+)\n(.*)$", doc("operating.md"), re.M))
    assert set(headed) == {f"HALFTONE_{name.upper()}" for name in Settings.model_fields}
    for name, field in Settings.model_fields.items():
        text = headed[f"HALFTONE_{name.upper()}"]
        assert text.startswith("Default")
        assert field.default is not PydanticUndefined
        if isinstance(field.default, bool):
            assert f"`{str(field.default).lower()}`" in text
        elif isinstance(field.default, int | str) and field.default != "":
            assert f"`{field.default}`" in text, f"{name} says {text}"


def test_every_error_code_is_in_the_table_with_its_status() -> None:
    rows = re.findall(r"^\| `([a-z-]+)` \| (\d+) \| (\S+) \|", doc("api.md"), re.M)
    assert {code for code, _, _ in rows} == codes()
    by_code = {code: (int(status), spent == "**yes**") for code, status, spent in rows}
    for kind in ServiceError.__subclasses__():
        assert by_code[kind.code] == (kind.status, kind.budget_spent)


def test_every_endpoint_has_a_heading_and_every_heading_an_endpoint(tmp_path: Path) -> None:
    house = open_house(tmp_path)
    try:
        paths = house.app.openapi()["paths"]
    finally:
        house.close()
    served = {(method.upper(), path) for path, operations in paths.items() for method in operations}
    headed = set(re.findall(r"^### (GET|PUT|POST|DELETE) (\S+)$", doc("api.md"), re.M))
    assert headed == served


def test_every_invariant_is_listed_with_tests_that_exist() -> None:
    rows = re.findall(r"^\| ([A-Z]\d) \| (\S+) \| .+ \| (.+) \|$", doc("invariants.md"), re.M)
    listed = {(label, module) for label, module, _ in rows}
    stated = {
        (label, str(file.relative_to(ROOT)))
        for file in (ROOT / "service").rglob("*.py")
        for label in STATED.findall(file.read_text())
    }
    assert listed == stated
    assert len({label for label, _ in listed}) == len(listed), "a label stands for one invariant in the whole project"
    for _, _, guards in rows:
        for guard in guards.split(", "):
            assert (ROOT / guard).is_file(), f"{guard} does not exist"


def test_nothing_cites_pages_that_are_not_here() -> None:
    """What is worth citing is in docs/; a reader of a clone has nothing else."""
    cited = re.compile(r"\b(DESIGN|MECHANISMS|ARCHITECTURE|THREATS|HOUSE)( section|\.md)|(?<!/)\bAPI\.md|\bTH \d")
    tracked = [file for folder in ("service", "tests", "docs", "migrations", "benchmarks") for file in
               (ROOT / folder).rglob("*") if file.suffix in (".py", ".md", ".sql", ".js")]  # fmt: skip
    found = {str(file.relative_to(ROOT)) for file in tracked if cited.search(file.read_text())}
    assert found <= {"tests/test_docs.py"}


@pytest.mark.parametrize(
    "page", sorted(str(p.relative_to(ROOT)) for p in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
)
def test_links_between_pages_lead_somewhere(page: str) -> None:
    file = ROOT / page
    for target in LINK.findall(file.read_text()):
        assert (file.parent / target).exists(), f"{page} links to {target}"


def blocks(name: str, language: str) -> list[str]:
    return re.findall(rf"^ *```{language}\n(.*?)^ *```", doc(name), re.M | re.S)


def test_the_quickstarts_catalog_can_be_applied() -> None:
    [text] = blocks("quickstart.md", "yaml")
    found = read_catalog(textwrap.dedent(text))
    assert found.datasets["clinic"].tables.keys() == {"patients", "stays"}


def test_the_requests_of_the_api_page_fit_the_wire() -> None:
    query, dataset, table = (read_exact(text.encode()) for text in blocks("api.md", "json"))
    assert ask_of(QueryWire.model_validate(query)).loss is not None
    assert budget_of(DatasetDeclaration.model_validate(dataset)).epsilon == 3 * 10**12
    assert TableDeclaration.model_validate(table).private


def test_the_readme_shows_a_real_answer() -> None:
    text = (ROOT / "README.md").read_text()
    assert '"status": "answered"' in text
    assert '"ledger_entry"' in text
