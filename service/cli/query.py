"""query a running service; selftest a new one in a folder of its own."""

import argparse
import asyncio
import json
import os
import tempfile
from pathlib import Path
from typing import Any

import httpx

from service import demo
from service.admin import COMMAND_LINE
from service.app import create_app, missing_walls, open_books
from service.catalog.declare import DatasetDeclaration
from service.catalog.keys import NewKey
from service.cli.serving import register
from service.cli.terminal import Stop, print_table
from service.client import Client, Refused
from service.settings import Settings
from service.store.migrate import upgrade

HERE = "http://127.0.0.1:8000"


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    query = commands.add_parser("query", help="ask a running service", description="Ask a running service over HTTP.")
    query.add_argument("sql")
    query.add_argument("--dataset", default="shop", help="which dataset is asked (shop)")
    query.add_argument("--epsilon", help="pay this epsilon, with Laplace noise")
    query.add_argument("--rho", help="pay this rho, with Gaussian noise")
    query.add_argument("--share", help="pay this part of the dataset's budget, like 0.01")
    query.add_argument("--accuracy", metavar="OUTPUT=WIDTH", help="pay what this half-width at 95%% needs, like n=50")
    query.add_argument("--delta", help="what selecting undeclared groups may use")
    query.add_argument("--estimate", action="store_true", help="only say what it would cost")
    query.add_argument("--json", action="store_true", help="the whole answer, not a table")
    query.add_argument("--url", help=f"where the service is; else HALFTONE_URL, else {HERE}")
    query.add_argument("--key", help="the key; better in the variable HALFTONE_KEY, where `ps` does not show it")
    query.set_defaults(run=run_query)
    test = commands.add_parser("selftest", help="check this installation end to end, in a temporary folder")
    test.set_defaults(run=run_selftest)


def run_query(options: argparse.Namespace) -> None:
    key = options.key or os.environ.get("HALFTONE_KEY")
    if not key:
        raise Stop("A key is needed: set HALFTONE_KEY.")
    url = options.url or os.environ.get("HALFTONE_URL") or HERE
    amounts = {name: getattr(options, name) for name in ("epsilon", "rho", "share", "delta") if getattr(options, name)}
    if options.accuracy:
        amounts["accuracy"] = wanted_accuracy(options.accuracy)
    try:
        with Client(url, key) as client:
            if options.estimate:
                print(json.dumps(client.estimate(options.dataset, options.sql, **amounts), indent=2))
                return
            answer = client.query(options.dataset, options.sql, **amounts)
    except Refused as refused:
        raise Stop(str(refused)) from None
    except (httpx.TransportError, httpx.InvalidURL):
        raise Stop(f"Nothing answers at {url}. Is the service running? --url or HALFTONE_URL says where.") from None
    if options.json:
        print(json.dumps(answer.body, indent=2))
        return
    records = answer.records()
    header = list(records[0]) if records else answer.names
    print_table(header, [list(record.values()) for record in records])
    for name, words in answer.clipped.items():
        print(f"clipped: {name}: {words}")
    for note in answer.body["notes"]:
        print(f"note: {note}")
    cost = answer.body["cost"]
    print(f"cost: {json.dumps(cost)}  remaining: {json.dumps(answer.body.get('remaining'))}")


def wanted_accuracy(text: str) -> dict[str, str]:
    output, _, width = text.rpartition("=")
    if not output or not width:
        raise Stop("--accuracy is written as OUTPUT=WIDTH, like n=50.")
    return {"output": output, "half_width": width}


def run_selftest(_: argparse.Namespace) -> None:
    """Migrate, declare, import, ask, verify: each step of the walk on data of its own."""
    with tempfile.TemporaryDirectory(prefix="halftone-selftest-") as folder:
        settings = Settings(data_dir=Path(folder), time_step_ms=0)
        upgrade(settings.store_url)
        step("the store can be migrated")
        books = open_books(settings)
        try:
            demo.write(settings.source_folders[0])
            books.administration.put_dataset("shop", DatasetDeclaration(**demo.DATASET), actor=COMMAND_LINE)
            register(books, "shop", "customers", demo.TABLES["customers"])
            step("a table can be imported")
            wish = NewKey("selftest", "analyst", ("shop",))
            key = books.administration.create_key(wish, actor=COMMAND_LINE)[1]
        finally:
            books.close()
        answer = ask_in_process(settings, key)
        step(f"a query is answered: {len(answer['rows'])} groups for {answer['cost']['epsilon']} epsilon")
        tell_walls(missing_walls())
        books = open_books(settings)
        try:
            if not books.administration.verify()["holds"]:
                raise Stop("The ledger of the self-test does not verify.")
        finally:
            books.close()
        step("the ledger verifies")


def tell_walls(missing: dict[str, str]) -> None:
    """Not every system lets engine processes be caged whole; they run all the same, and the operator should know."""
    if not missing:
        step("engine processes are caged: no network, no other programs, no calls that they do not need")
    for wall, meaning in missing.items():
        print(f"--  engine processes lack a wall: {wall}. {meaning.capitalize()}", flush=True)


def step(text: str) -> None:
    print(f"ok  {text}", flush=True)


def ask_in_process(settings: Settings, key: str) -> dict[str, Any]:
    """One query through the whole application, without a port."""
    app = create_app(settings)

    async def ask() -> httpx.Response:
        async with app.router.lifespan_context(app):
            transport = httpx.ASGITransport(app=app)
            async with httpx.AsyncClient(transport=transport, base_url="http://selftest", timeout=120) as client:
                body = {
                    "dataset": "shop",
                    "sql": "SELECT country, COUNT(*) AS n FROM customers GROUP BY country",
                    "epsilon": "1",
                    "wait": 60,
                }
                return await client.post("/v1/queries", json=body, headers={"Authorization": f"Bearer {key}"})

    response = asyncio.run(ask())
    if response.status_code != 201:
        raise Stop(f"The self-test's query was not answered: {response.text}")
    answer: dict[str, Any] = response.json()
    return answer
