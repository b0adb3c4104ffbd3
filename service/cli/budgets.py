"""budget show, grant, quota, pause, resume; ledger show, verify, accept-restore, export."""

import argparse
import json

from service.admin import COMMAND_LINE
from service.cli.terminal import Stop, books, print_table, whole_number
from service.core.amounts import CLOSED, parse_share, show_atto, show_pico, weakness


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    group = commands.add_parser("budget", help="look at and grant privacy budgets")
    acts = group.add_subparsers(metavar="ACT", required=True)
    show = acts.add_parser("show", help="granted and spent, order by order")
    show.set_defaults(run=run_budget_show)
    grant = acts.add_parser("grant", help="set how much of the ceiling may be used")
    grant.add_argument("--epsilon")
    grant.add_argument("--delta")
    grant.set_defaults(run=run_grant)
    pause = acts.add_parser("pause", help="no more queries until resumed")
    pause.set_defaults(run=run_pause)
    resume = acts.add_parser("resume", help="queries go on, with a fresh allowance of failures")
    resume.set_defaults(run=run_resume)
    quota = acts.add_parser("quota", help="ration one key to a share of the budget")
    quota.set_defaults(run=run_quota)
    for command in (show, grant, quota, pause, resume):
        command.add_argument("dataset")
    for command in (pause, resume):
        command.add_argument("--analyst", metavar="OWNER", help="only this person's queries: see `halftone key list`")
    quota.add_argument("prefix", help="of the key: see `halftone key list`")
    quota.add_argument("share", help="like 0.25; `none` lifts the ration")
    for command in (grant, quota, pause, resume):
        command.add_argument("--reason", required=True)
    books_group = commands.add_parser("ledger", help="look into the journal and verify it")
    ledger = books_group.add_subparsers(metavar="ACT", required=True)
    tail = ledger.add_parser("show", help="entries, oldest first")
    tail.add_argument("--dataset")
    tail.add_argument("--after", type=whole_number, default=0)
    tail.add_argument("--limit", type=whole_number, default=50)
    tail.set_defaults(run=run_entries)
    check = ledger.add_parser("verify", help="re-derive the chain and every balance")
    check.add_argument("--head", action="append", default=[], help="a hash kept from an export; it must still occur")
    check.set_defaults(run=run_verify)
    accept = ledger.add_parser("accept-restore", help="go on with a restored ledger; what it forgot counts as spent")
    accept.add_argument("--reason", required=True)
    accept.set_defaults(run=run_accept_restore)
    ledger.add_parser("export", help="the whole journal as JSON lines").set_defaults(run=run_export)


def run_budget_show(options: argparse.Namespace) -> None:
    with books() as opened:
        opened.catalog.declaration(options.dataset)
        balance, (_, *persons) = opened.ledger.balance(options.dataset), opened.ledger.events(options.dataset)
    print(f"granted epsilon {show_pico(balance.epsilon_granted)} at delta {show_atto(balance.delta_granted)}")
    terms = balance.terms
    print(f"ceiling epsilon {show_pico(terms.epsilon_ceiling)} at delta {show_atto(terms.delta_ceiling)}")
    if weak := weakness(terms.epsilon_ceiling, terms.delta_ceiling):
        print(weak)
    orders = [*(f"{float(order):g}" for order in balance.terms.orders), "infinity"]
    rows = [
        [order, show_pico(limit) if limit >= 0 else "closed", "closed" if spent >= CLOSED else show_pico(spent)]
        for order, limit, spent in zip(orders, balance.limits, balance.spent, strict=True)
    ]
    print_table(["order", "limit", "spent"], rows)
    print(f"delta for undeclared groups: {show_atto(balance.delta_spent)} of {show_atto(balance.delta_limit)}")
    print(f"failures after the charge: {balance.failures} of {balance.failures_allowed} allowed")
    print(f"late answers: {balance.late}; promised times are at least {balance.safety} times the predicted ones")
    if balance.paused:
        print("paused: queries are refused until `halftone budget resume`")
    if persons:
        print()
        happened = [
            [one.owner, f"{one.failures} of {one.failures_allowed}", one.late, "paused" if one.paused else ""]
            for one in persons
        ]
        print_table(["owner", "failures", "late", ""], happened)


def run_grant(options: argparse.Namespace) -> None:
    if options.epsilon is None and options.delta is None:
        raise Stop("Say how much: --epsilon, --delta or both.")
    with books() as opened:
        opened.administration.grant(
            options.dataset, options.epsilon, options.delta, actor=COMMAND_LINE, reason=options.reason
        )
        balance = opened.ledger.balance(options.dataset)
    print(f"Granted: epsilon {show_pico(balance.epsilon_granted)} at delta {show_atto(balance.delta_granted)}.")


def run_quota(options: argparse.Namespace) -> None:
    share = None if options.share == "none" else parse_share(options.share)
    with books() as opened:
        opened.administration.set_quota(
            options.dataset, options.prefix, share, actor=COMMAND_LINE, reason=options.reason
        )
    print("Rationed." if share is not None else "No longer rationed.")


def run_pause(options: argparse.Namespace) -> None:
    with books() as opened:
        opened.administration.pause(options.dataset, actor=COMMAND_LINE, reason=options.reason, owner=options.analyst)
    print("Paused.")


def run_resume(options: argparse.Namespace) -> None:
    with books() as opened:
        opened.administration.resume(options.dataset, actor=COMMAND_LINE, reason=options.reason, owner=options.analyst)
    print("Resumed.")


def run_entries(options: argparse.Namespace) -> None:
    with books() as opened:
        for entry in opened.administration.entries(dataset=options.dataset, after=options.after, limit=options.limit):
            print(json.dumps(entry))


def run_verify(options: argparse.Namespace) -> int:
    with books() as opened:
        verdict = opened.administration.verify(tuple(options.head))
    print(json.dumps(verdict, indent=2))
    return 0 if verdict["holds"] else 1


def run_accept_restore(options: argparse.Namespace) -> None:
    with books() as opened:
        charged = opened.administration.accept_restore(actor=COMMAND_LINE, reason=options.reason)
    print(f"Accepted. What may be missing was charged to: {', '.join(charged) or 'no dataset'}.")


def run_export(_: argparse.Namespace) -> None:
    with books() as opened:
        for line in opened.ledger.export():
            print(line)
