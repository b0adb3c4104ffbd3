"""Names: nothing is defined that nothing uses, no public name means two things, and lists of the allowed are exact.

Everything is read from the source, not from the running program. Tests do not count as use: what only they call is
dead, and goes with them.
"""

import ast
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterator

import pytest

from tests.fixtures.source import ROOT, Definition, Function, Module, defined, definitions, imports, modules, service

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONTRACTS = PROJECT["tool"]["importlinter"]["contracts"]
PROTECTED = [contract for contract in CONTRACTS if contract["type"] == "protected"]

# Whoever decorates with these hands the function to somebody who calls it.
REGISTERING = {"compiles", "exception_handler", "field_validator", "handles", "listens_for", "model_validator"}
ROUTERS = {"app", "router"}
# Frameworks that read all that a class holds, without naming it.
FRAMEWORKS = {"BaseModel", "BaseSettings", "TypedDict"}

# Used, but not by name under service/: each with who uses it.
USED_ELSEWHERE = {
    "service.api.json_body.ExactRoute.get_route_handler": "fastapi asks each route for it",
    "service.api.middleware.logs.JsonLines.format": "logging calls it",
    "service.catalog.apply._Loader.compose_node": "yaml calls it",
    "service.catalog.apply._Loader.construct_mapping": "yaml calls it",
    "service.client.Answer.clipped_share": "people who take the client's values read it",
    **dict.fromkeys(
        (
            f"service.cli.connections.GuardedProtocol.{name}"
            for name in (
                "connection_lost",
                "connection_made",
                "data_received",
                "on_headers_complete",
                "on_message_complete",
                "on_response_complete",
                "pause_writing",
                "resume_writing",
            )
        ),
        "asyncio, httptools and uvicorn call it",
    ),
    "service.client.Answer.to_pandas": "people with pandas call it",
    "service.core.aggregates.AggregateSpec.shown": "docs/supported-sql.md is compared with it",
    "service.engine.duckdb.importing.build.main": "child.py starts it by the module's name",
    "service.engine.reports.ColumnSuggestion.file_type": "admins read it: asdict",
    "service.engine.reports.ColumnSuggestion.null_share": "admins read it: asdict",
    "service.engine.reports.ColumnSuggestion.unit_candidate": "admins read it: asdict",
    "service.engine.reports.Inspection.complete": "admins read it: asdict",
    "service.engine.duckdb.processes.seccomp._Program._fields_": "ctypes reads it",
    "service.engine.duckdb.processes.worker.main": "child.py starts it by the module's name",
    "service.ledger.rederive.Replay._pause": "called by the kind of an entry",
    "service.ledger.rederive.Replay._quota": "called by the kind of an entry",
    "service.ledger.rederive.Replay._resume": "called by the kind of an entry",
    "service.ledger.rederive.Replay._safety": "called by the kind of an entry",
    "service.ledger.rederive.Replay._settle": "called by the kind of an entry",
    "service.ledger.rederive.Replay._window": "called by the kind of an entry",
    "service.ledger.verify.Verdict.broken_entry": "admins read it: asdict",
    "service.walk.planner_process.main": "helper_process.py starts it by the module's name",
    "service.walk.release_process.main": "helper_process.py starts it by the module's name",
    "service.walk.process_wire._Pickler.reducer_override": "pickle calls it",
    "service.store.clock.utc_now.inherit_cache": "sqlalchemy reads it",
    "service.store.migrate.make_revision": "docs/budgets.md says how to call it",
}

# Public names that two modules define: each with why that is meant.
MEANT_TWICE = {
    "Answer": "the body of an answer as the API describes it, and as the Python client hands it out",
    "add_commands": "each module of the command line adds its own",
    "main": "what a command or a child process starts with",
}


# --- dead code ---------------------------------------------------------------------------------------


def within(definition: Definition, line: int) -> bool:
    return definition.node.lineno <= line <= (definition.node.end_lineno or definition.node.lineno)


def read_names(module: Module) -> dict[str, list[int]]:
    """Lines at which a module reads each name; types may be named in quotes."""
    found: dict[str, list[int]] = defaultdict(list)
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Store):
            found[node.id].append(node.lineno)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            for name in re.findall(r"\b[A-Z]\w*", node.value) if re.fullmatch(r"[\w\[\]|., ]+", node.value) else []:
                found[name].append(node.lineno)
    return found


def taken() -> set[tuple[str, str]]:
    """(module, name) of all that another module takes: by name, or through the module it imports as a whole."""
    known = service()
    found: set[tuple[str, str]] = set()
    for module in modules("service", "migrations").values():
        whole = set()
        for source, name, _ in imports(module, known):
            if name is not None:
                found.add((source, name))
            else:
                whole.add(source)
        read = {node.attr for node in ast.walk(module.tree) if isinstance(node, ast.Attribute)}
        found |= {(source, name) for source in whole & known.keys() for name in read}
    for target in PROJECT["project"]["scripts"].values():
        source, _, name = target.partition(":")
        found.add((source, name))
    return found


def read_attributes() -> dict[str, list[tuple[str, int]]]:
    """Where each attribute is read, by name alone: which object it belongs to is not known here."""
    found: dict[str, list[tuple[str, int]]] = defaultdict(list)
    fields = {
        node.name: [name for name, part in defined(node.body) if isinstance(part, ast.AnnAssign)]
        for module in service().values()
        for node in module.tree.body
        if isinstance(node, ast.ClassDef)
    }
    for module in modules("service", "migrations").values():
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                found[node.attr].append((module.name, node.lineno))
            elif isinstance(node, ast.MatchClass):
                for name in [*node.kwd_attrs, *fields.get(ast.unparse(node.cls), ())[: len(node.patterns)]]:
                    found[name].append((module.name, node.lineno))
            elif isinstance(node, ast.ClassDef):  # what the class itself builds on: __str__ = _refuse
                for part in (part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign)):
                    for name in ast.walk(part):
                        if isinstance(name, ast.Name) and isinstance(name.ctx, ast.Load):
                            found[name.id].append((module.name, part.lineno))
    return found


def decorators(node: ast.stmt) -> Iterator[tuple[str, str]]:
    """(name, what it belongs to) of the decorators of a function or class."""
    for decorator in node.decorator_list if isinstance(node, Function | ast.ClassDef) else []:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        if isinstance(called, ast.Attribute):
            yield called.attr, called.value.id if isinstance(called.value, ast.Name) else ""
        elif isinstance(called, ast.Name):
            yield called.id, ""


def registered(node: ast.stmt) -> bool:
    return any(name in REGISTERING or owner in ROUTERS for name, owner in decorators(node))


def read_by_frameworks() -> set[tuple[str, str]]:
    """(module, class) of those whose members a framework reads: they derive from it, near or far."""
    bases = {
        (module.name, node.name): {part.id for part in node.bases if isinstance(part, ast.Name)}
        for module in service().values()
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ClassDef)
    }
    found: set[tuple[str, str]] = set()
    while more := {at for at, above in bases.items() if above & FRAMEWORKS.union(name for _, name in found)} - found:
        found |= more
    return found


def unused() -> set[str]:
    used, read, foreign = taken(), read_attributes(), read_by_frameworks()
    found = set()
    for module in service().values():
        inside = read_names(module)
        for definition in definitions(module):
            name, owner = definition.name, definition.owner
            if re.fullmatch(r"__\w+__|_", name) or registered(definition.node) or (module.name, owner) in foreign:
                continue
            if owner is None:
                alive = (module.name, name) in used or any(not within(definition, line) for line in inside[name])
            else:
                alive = any(where != module.name or not within(definition, line) for where, line in read[name])
            if not alive:
                found.add(str(definition))
    return found


def test_nothing_is_defined_that_nothing_uses() -> None:
    assert unused() == set(USED_ELSEWHERE)


def test_what_a_package_passes_on_is_taken_from_it() -> None:
    """A name in __all__ that everybody takes from where it is defined is a second address for nothing."""
    used = taken()
    for module in service().values():
        passed = [node for node in module.tree.body if isinstance(node, ast.Assign) and "__all__" in ast.dump(node)]
        for node in passed:
            for name in ast.literal_eval(node.value):
                assert (module.name, name) in used, f"nobody takes {name} from {module.name}"


# --- names that mean two things ----------------------------------------------------------------------


def test_a_public_name_is_defined_once() -> None:
    """A function or class that another module defines too must be told apart by its import line; better by its name."""
    homes: dict[str, set[str]] = defaultdict(set)
    for module in service().values():
        for definition in definitions(module):
            public = definition.owner is None and not definition.name.startswith("_")
            if public and isinstance(definition.node, Function | ast.ClassDef):
                homes[definition.name].add(module.name)
    twice = {name: sorted(where) for name, where in homes.items() if len(where) > 1}
    assert twice.keys() == MEANT_TWICE.keys(), {name: twice.get(name) for name in twice.keys() ^ MEANT_TWICE.keys()}


# --- import contracts --------------------------------------------------------------------------------


@pytest.mark.parametrize("contract", PROTECTED, ids=lambda contract: contract["name"])
def test_whoever_may_import_does(contract: dict[str, list[str]]) -> None:
    """An allow-list with entries that nobody uses is a door left open."""
    known = service()
    guarded = contract["protected_modules"]
    users = {
        module.name
        for module in known.values()
        for source, _, _ in imports(module, known)
        if any(source == name or source.startswith(f"{name}.") for name in guarded)
    }
    for entry in contract["allowed_importers"]:
        inside = {user for user in users if user == entry or user.startswith(f"{entry}.")}
        assert inside, f"{entry} does not import {' or '.join(guarded)}"


def test_every_room_has_its_layers() -> None:
    """A package of packages has an order, and a module that joins it gets a place."""
    known = service()
    rooms = {name for name in known if any(other.startswith(f"{name}.") for other in known)}
    nested = {name for name in rooms if any(other.startswith(f"{name}.") for other in rooms)}
    layered = {name for contract in CONTRACTS if contract["type"] == "layers" for name in contract["containers"]}
    assert layered == nested
    assert all(contract["exhaustive"] for contract in CONTRACTS if contract["type"] == "layers")
