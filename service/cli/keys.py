"""key create, list, revoke. The first admin key can only come from here."""

import argparse
from datetime import UTC, datetime, timedelta

from service.admin import COMMAND_LINE
from service.api.bodies import show_key
from service.catalog.keys import NewKey
from service.cli.terminal import Stop, books, print_table, whole_number


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    group = commands.add_parser("key", help="make, list and revoke API keys")
    acts = group.add_subparsers(metavar="ACT", required=True)
    create = acts.add_parser("create", help="make a key; it is shown once")
    create.add_argument("--role", choices=["admin", "analyst", "viewer"], required=True)
    create.add_argument("--name", default="", help="whose key it is")
    create.add_argument("--dataset", action="append", default=[], help="may read this dataset (repeat for more)")
    create.add_argument("--owner", help="the person; keys of one owner share an allowance of failures")
    create.add_argument("--days", type=whole_number, help="expires after so many days")
    create.set_defaults(run=run_create)
    acts.add_parser("list", help="all keys, without secrets").set_defaults(run=run_key_list)
    revoke = acts.add_parser("revoke", help="take a key out of use")
    revoke.add_argument("prefix")
    revoke.set_defaults(run=run_revoke)


def run_create(options: argparse.Namespace) -> None:
    if options.days is not None and not 1 <= options.days <= 36500:
        raise Stop("--days must be between 1 and 36500.")
    expires = None
    if options.days is not None:
        expires = int((datetime.now(UTC) + timedelta(days=options.days)).timestamp() * 1000)
    with books() as opened:
        wish = NewKey(options.name or options.role, options.role, tuple(options.dataset), expires, options.owner)
        _, text = opened.administration.create_key(wish, actor=COMMAND_LINE)
    print(text)


def run_key_list(_: argparse.Namespace) -> None:
    with books() as opened:
        keys = [show_key(key) for key in opened.keys.every()]
    columns = ["prefix", "owner", "role", "name", "datasets", "created_at", "expires_at", "revoked_at", "last_used_at"]
    rows = [[", ".join(key[name]) if name == "datasets" else key[name] for name in columns] for key in keys]
    print_table(columns, rows)


def run_revoke(options: argparse.Namespace) -> None:
    with books() as opened:
        opened.administration.revoke_key(options.prefix, actor=COMMAND_LINE)
    print("Revoked.")
