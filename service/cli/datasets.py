"""dataset list, show, put, table, refresh, profile, inspect, delete; apply a YAML file."""

import argparse
import json
import sys
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from service.admin import COMMAND_LINE
from service.api.bodies import show_new_profile, show_promise, show_schema
from service.catalog.apply import Change, changes, read_catalog
from service.catalog.declare import DatasetDeclaration, SourceDeclaration, TableDeclaration
from service.catalog.smartnoise import from_smartnoise
from service.cli.serving import register
from service.cli.terminal import Stop, books, print_table
from service.core.validation_words import message

Model = TypeVar("Model", bound=BaseModel)


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    group = commands.add_parser("dataset", help="declare datasets and tables")
    acts = group.add_subparsers(metavar="ACT", required=True)
    acts.add_parser("list", help="all datasets").set_defaults(run=run_dataset_list)
    _add_acts(acts)
    apply = commands.add_parser("apply", help="make the catalog what a YAML file says; shows a diff first")
    apply.add_argument("file")
    apply.add_argument("--yes", action="store_true", help="do not ask")
    apply.set_defaults(run=run_apply)
    convert = commands.add_parser("convert", help="turn SmartNoise metadata YAML into a catalog file to review")
    convert.add_argument("file")
    convert.set_defaults(run=run_convert)


def _add_acts(acts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Those that name a dataset."""
    show = acts.add_parser("show", help="tables, columns, bounds, defaults")
    show.set_defaults(run=run_dataset_show)
    put = acts.add_parser("put", help="declare a dataset from a JSON file (- for standard input)")
    put.set_defaults(run=run_put)
    table = acts.add_parser("table", help="declare and import a table from a JSON file")
    table.set_defaults(run=run_table)
    refresh = acts.add_parser("refresh", help="import a table again, as declared: for new data")
    refresh.set_defaults(run=run_refresh)
    profile = _profile_command(acts)
    inspect = acts.add_parser(
        "inspect", help="suggest types, bounds and domains from a file (from the data: admins only)"
    )
    inspect.set_defaults(run=run_inspect)
    delete = acts.add_parser("delete", help="stop serving a dataset; its budget stays")
    delete.add_argument("--reason", default="")
    delete.set_defaults(run=run_delete)
    refit = acts.add_parser("refit", help="accept default bounds that fit the profile of today")
    refit.add_argument("--reason", required=True)
    refit.set_defaults(run=run_refit)
    for command in (show, put, table, refresh, profile, inspect, delete, refit):
        command.add_argument("dataset")
    profile.add_argument("table", nargs="?", help="left out: all private tables, each paid for")
    for command in (table, refresh, inspect):
        command.add_argument("table")
    for command in (put, table):
        command.add_argument("file")
    inspect.add_argument("kind", choices=["parquet", "csv", "duckdb"])
    inspect.add_argument("path", help="below a folder of HALFTONE_SOURCES")
    inspect.add_argument("--inner", help="the table inside a DuckDB file")
    for command in (table, refresh):
        command.add_argument("--reason", help="why a copy of files that are known elsewhere may be imported")


def _profile_command(acts: "argparse._SubParsersAction[argparse.ArgumentParser]") -> argparse.ArgumentParser:
    profile = acts.add_parser(
        "profile", help="buy a new profile of a table, or of all private ones: about how many units and rows it has"
    )
    profile.add_argument("--share", help="the part of the ceiling that each may cost; left out: as declared")
    profile.add_argument("--reason", default="")
    profile.set_defaults(run=run_profile)
    return profile


def run_dataset_list(_: argparse.Namespace) -> None:
    with books() as opened:
        rows = []
        for name in opened.catalog.datasets():
            schema = opened.catalog.schema(name)
            rows.append([name, schema.unit, ", ".join(schema.tables), schema.data_version])
    print_table(["dataset", "unit", "tables", "version"], rows)


def run_dataset_show(options: argparse.Namespace) -> None:
    with books() as opened:
        schema, profiles = opened.catalog.schema(options.dataset), opened.catalog.profiles(options.dataset)
        shown = show_schema(schema, profiles) | show_promise(opened.ledger.terms(options.dataset))
        print(json.dumps(shown, indent=2, default=str))


def run_put(options: argparse.Namespace) -> None:
    declared = read_model(options.file, DatasetDeclaration)
    with books() as opened:
        is_new = opened.administration.put_dataset(options.dataset, declared, actor=COMMAND_LINE)
    print("Declared." if is_new else "Updated.")


def run_table(options: argparse.Namespace) -> None:
    declared = with_reason(read_model(options.file, TableDeclaration), options.reason)
    with books() as opened:
        register(opened, options.dataset, options.table, declared)


def run_refresh(options: argparse.Namespace) -> None:
    with books() as opened:
        declared = opened.catalog.table_declarations(options.dataset).get(options.table)
        if declared is None:
            raise Stop(f"There is no table {options.dataset}.{options.table}.")
        reasoned = with_reason(declared, options.reason)
        print(f"  {payable_again(opened.administration.dependents(options.dataset, options.table))}", flush=True)
        register(opened, options.dataset, options.table, reasoned)


def with_reason(declared: TableDeclaration, reason: str | None) -> dict[str, Any]:
    """The declaration, with the reason that the command line gives in place of its own."""
    given = declared.model_dump()
    if reason is None:
        return given
    try:
        return TableDeclaration.model_validate({**given, "reason": reason}).model_dump()
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        raise Stop(f"--reason: {message(first, first['loc'])}") from None


def payable_again(found: dict[str, Any]) -> str:
    """What an import takes away, in a sentence."""
    count = "1 stored answer" if found["answers"] == 1 else f"{found['answers']:,} stored answers"
    shown = f" and panels {', '.join(found['panels'])}" if found["panels"] else ""
    return f"Payable again after this import of {', '.join(found['tables'])}: {count}{shown}."


def run_profile(options: argparse.Namespace) -> None:
    with books() as opened:
        schema = opened.catalog.schema(options.dataset)
        private = [table.name for table in schema.tables.values() if table.private]
        if options.table is None and not private:
            raise Stop(f"{options.dataset} has no private table that has been imported.")
        for name in private if options.table is None else [options.table]:
            released = opened.administration.profile(
                options.dataset, name, options.share, actor=COMMAND_LINE, reason=options.reason
            )
            shown = show_new_profile(schema, name, released)
            paid = shown["profile"]["cost"]["epsilon"] or f"rho {shown['profile']['cost']['rho']}"
            print(f"  {name}: {shown['profile']['words']}. It cost {paid}.")
            print(f"    A unit keeps at most {shown['rows_per_unit_next']:,} rows from the next import on.")


def run_inspect(options: argparse.Namespace) -> None:
    source = SourceDeclaration(kind=options.kind, path=options.path, table=options.inner)
    with books() as opened:
        found = opened.administration.inspect(options.dataset, options.table, source, actor=COMMAND_LINE)
    print(json.dumps(found, indent=2, default=str))


def run_refit(options: argparse.Namespace) -> None:
    with books() as opened:
        changed = opened.administration.refit(options.dataset, actor=COMMAND_LINE, reason=options.reason)
    if not changed:
        print("Nothing changed: the bounds in use are those that fit, or none is in use yet.")
        return
    rows = [[each["table"], each["joined"], each["groups"], each["before"], each["after"]] for each in changed]
    print_table(["table", "joined", "groups", "before", "after"], rows)


def run_delete(options: argparse.Namespace) -> None:
    with books() as opened:
        opened.administration.delete_dataset(options.dataset, actor=COMMAND_LINE, reason=options.reason)
    print("Deleted; its budget stays with its people.")


def run_apply(options: argparse.Namespace) -> int:
    wanted = read_catalog(read_text(options.file))
    with books() as opened:
        found = changes(opened.catalog, wanted)
        if not found:
            print("Nothing to change.")
            return 0
        for change in found:
            print(change.diff)
        if not options.yes and not confirmed():
            print("Nothing was changed.")
            return 1
        for change in found:
            _carry_out(opened, change)
    return 0


def confirmed() -> bool:
    if not sys.stdin.isatty():
        raise Stop("This would change the catalog as shown. Add --yes to do it.")
    return input("Do this? [y/N] ").strip().lower() in ("y", "yes")


def _carry_out(opened: Any, change: Change) -> None:
    if change.table is None:
        assert isinstance(change.declared, DatasetDeclaration)
        opened.administration.put_dataset(change.dataset, change.declared, actor=COMMAND_LINE)
        print(f"  {change.dataset}: declared.")
    else:
        register(opened, change.dataset, change.table, change.declared.model_dump())


def run_convert(options: argparse.Namespace) -> None:
    print(from_smartnoise(read_text(options.file)), end="")


def read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text()
    except (OSError, UnicodeError):
        raise Stop(f"{file} can not be read as text.") from None


def read_model(file: str, model: type[Model]) -> Model:
    try:
        return model.model_validate_json(read_text(file))
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the file"
        raise Stop(f"{file}: {place}: {message(first, first['loc'])}") from None
