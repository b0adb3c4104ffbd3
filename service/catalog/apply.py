"""One YAML file as the catalog: what would change, shown before it is done.

    datasets:
      shop:
        unit: customer
        epsilon: "3"
        tables:
          customers: {source: {kind: parquet, path: shop/customers.parquet}, private: true, unit: {column: customer_id}}

Applying twice changes nothing the second time. A table that the file does not mention is left alone:
deleting is an act of its own.
"""

import difflib
import json
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from service.catalog.check import check_name
from service.catalog.declare import DatasetDeclaration, Declared, Name, TableDeclaration
from service.catalog.store import Catalog, declaration_text
from service.core.errors import CatalogRefused
from service.core.validation_words import message

CHARACTERS_MAX = 1_000_000


class DatasetEntry(DatasetDeclaration):
    """A dataset with its tables."""

    tables: dict[Name, TableDeclaration] = Field(default_factory=dict)

    def alone(self) -> DatasetDeclaration:
        fields = {name: getattr(self, name) for name in DatasetDeclaration.model_fields}
        return DatasetDeclaration(**fields)


class CatalogFile(Declared):
    """A whole catalog, by dataset."""

    datasets: Annotated[dict[Name, DatasetEntry], Field(max_length=1000)]


@dataclass(frozen=True, slots=True)
class Change:
    """One thing to declare: a dataset, or a table of it."""

    dataset: str
    table: str | None
    declared: DatasetDeclaration | TableDeclaration
    diff: str


class _Loader(yaml.SafeLoader):
    """Plain YAML: no aliases (a few of them can stand for gigabytes) and no name twice."""

    def compose_node(self, parent: Any, index: Any) -> Any:
        if self.check_event(yaml.events.AliasEvent):
            raise CatalogRefused("the file uses YAML aliases (*name); write things out instead")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Hashable, Any]:
        names = [self.construct_object(name, deep=True) for name, _ in node.value]
        if len({str(name) for name in names}) != len(names):
            raise CatalogRefused(f"the file names something twice, near line {node.start_mark.line + 1}")
        return super().construct_mapping(node, deep)


def load_yaml(text: str) -> Any:
    """YAML of bounded size and without surprises, or a refusal with the line."""
    if len(text) > CHARACTERS_MAX:
        raise CatalogRefused(f"the file is longer than {CHARACTERS_MAX} characters")
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        place = f" near line {mark.line + 1}" if mark else ""
        raise CatalogRefused(f"the file is no YAML{place}") from None
    except (RecursionError, ValueError):
        raise CatalogRefused("the file is nested too deeply or holds a value that can not be read") from None


def read_catalog(text: str) -> CatalogFile:
    try:
        return CatalogFile.model_validate(load_yaml(text))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"] if part != "[key]")
        raise CatalogRefused(f"{place or 'the file'}: {message(first, first['loc'])}") from None


def changes(catalog: Catalog, wanted: CatalogFile) -> list[Change]:
    """Datasets first, then tables so that each comes after the one through which it reaches its unit."""
    found: list[Change] = []
    live = set(catalog.datasets())
    for name, entry in wanted.datasets.items():
        now = catalog.declaration(name) if name in live else None
        declared = entry.alone()
        if now is None or declaration_text(now) != declaration_text(declared):
            found.append(Change(name, None, declared, show(name, now, declared)))
        tables = catalog.table_declarations(name) if name in live else {}
        served = catalog.schema(name).tables if name in live else {}
        for table in referenced_first(entry.tables):
            old, new = tables.get(table), entry.tables[table]
            if old is None:
                check_name(table, "table")  # here too, so that a file is refused before any part of it is done
            if old is None or table not in served or declaration_text(old) != declaration_text(new):
                found.append(Change(name, table, new, show(f"{name}.{table}", old, new)))
    return found


def referenced_first(tables: dict[str, TableDeclaration]) -> list[str]:
    """A table after the one it references; circles are left as they are and refused on registration."""
    done: list[str] = []

    def visit(name: str, path: tuple[str, ...]) -> None:
        if name in done or name in path or name not in tables:
            return
        unit = tables[name].unit
        if unit is not None and unit.via is not None:
            visit(unit.via.references.split(".")[0], (*path, name))
        done.append(name)

    for name in tables:
        visit(name, ())
    return done


def show(
    name: str, old: DatasetDeclaration | TableDeclaration | None, new: DatasetDeclaration | TableDeclaration
) -> str:
    """A unified diff of the two declarations."""
    before = [] if old is None else _lines(old)
    return "\n".join(difflib.unified_diff(before, _lines(new), f"{name} (now)", f"{name} (wanted)", lineterm=""))


def _lines(declared: DatasetDeclaration | TableDeclaration) -> list[str]:
    return json.dumps(json.loads(declaration_text(declared)), indent=2, sort_keys=True).splitlines()
