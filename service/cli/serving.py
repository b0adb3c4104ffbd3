"""serve, demo, migrate: bring the service up."""

import argparse
import resource
import socket
from typing import Any

import uvicorn

from service import demo
from service.admin import COMMAND_LINE
from service.api.middleware.logs import configure
from service.app import Books, create_app, open_books
from service.catalog.declare import DatasetDeclaration, TableDeclaration
from service.catalog.keys import NewKey
from service.cli.connections import guarded_protocol
from service.cli.terminal import Stop, require_current, whole_number
from service.settings import Settings, read_settings
from service.store.migrate import upgrade

DEMO = "shop"
OWN_FILES = 512


def add_commands(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    serve = commands.add_parser("serve", help="serve the API", description="Serve the API over HTTP.")
    serve.add_argument("--migrate", action="store_true", help="bring the store to the newest revision first")
    serve.set_defaults(run=run_serve)
    trial = commands.add_parser(
        "demo",
        help="make demo data and keys on the first run, then serve",
        description="Migrate, make and register the demo shop, print three keys once, and serve on localhost.",
    )
    trial.set_defaults(run=run_demo)
    for command in (serve, trial):
        command.add_argument("--host", help="address to listen on (HALFTONE_HOST)")
        command.add_argument("--port", type=whole_number, help="port to listen on (HALFTONE_PORT)")
    migrate = commands.add_parser("migrate", help="bring the store to the newest revision")
    migrate.set_defaults(run=run_migrate)


def run_migrate(_: argparse.Namespace) -> None:
    settings = read_settings()
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    upgrade(settings.store_url)
    print("The store is up to date.")


def run_serve(options: argparse.Namespace) -> None:
    settings = read_settings(host=options.host, port=options.port)
    require_free(settings)
    if options.migrate:
        run_migrate(options)
    require_current(settings)
    require_keys(settings)
    serve(settings)


def run_demo(options: argparse.Namespace) -> None:
    """Nothing is done before the port is known to be free; a second run keeps everything."""
    settings = read_settings(host=options.host, port=options.port)
    require_free(settings)
    settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    upgrade(settings.store_url)
    books = open_books(settings)
    try:
        make_demo(books, settings)
        made = make_keys(books)
    finally:
        books.close()
    require_keys(settings)
    show_welcome(settings, made)
    serve(settings)


def make_demo(books: Books, settings: Settings) -> None:
    """Whatever of the demo dataset is not there yet; an interrupted first run is simply continued."""
    if DEMO not in books.catalog.datasets():
        books.administration.put_dataset(DEMO, DatasetDeclaration(**demo.DATASET), actor=COMMAND_LINE)
    missing = [name for name in demo.TABLES if name not in books.catalog.schema(DEMO).tables]
    if not missing:
        return
    print("Making the demo shop …", flush=True)
    demo.write(settings.source_folders[0])
    for name in missing:
        register(books, DEMO, name, demo.TABLES[name])


def register(books: Books, dataset: str, table: str, declared: dict[str, Any]) -> None:
    """Import one table and wait for it."""
    import_id = books.administration.put_table(dataset, table, TableDeclaration(**declared), actor=COMMAND_LINE)
    books.administration.wait(dataset, table)
    ended = books.catalog.find_import(import_id)
    if ended["state"] != "done":
        raise Stop(f"{dataset}.{table} could not be imported: {ended['detail']}")
    print(f"  {table}: ready. {ended['detail']}".rstrip(), flush=True)


def make_keys(books: Books) -> dict[str, str]:
    """An admin, an analyst and a viewer key, unless any key is in use."""
    if books.keys.any_active():
        return {}
    made = {}
    for role in ("admin", "analyst", "viewer"):
        wish = NewKey(f"demo {role}", role, () if role == "admin" else (DEMO,))
        made[role] = books.administration.create_key(wish, actor=COMMAND_LINE)[1]
    return made


def show_welcome(settings: Settings, made: dict[str, str]) -> None:
    base = f"http://{settings.host}:{settings.port}"
    if made:
        print("\nKeys, shown this once:")
        for role, text in made.items():
            print(f"  {role:8} {text}")
        print(
            f"\nAsk something:\n  curl -s {base}/v1/queries -H 'Authorization: Bearer {made['analyst']}' \\\n"
            "    -H 'Content-Type: application/json' \\\n"
            '    -d \'{"dataset": "shop", "epsilon": "0.1",'
            ' "sql": "SELECT country, COUNT(*) AS n FROM customers GROUP BY country"}\''
        )
    else:
        print("Data and keys of the last run are kept. Lost the keys? halftone key create --role admin")
    shown = f"console: {base}/, API: {base}/docs" if settings.console else f"API: {base}/docs"
    print(f"\nServing on {base} ({shown}). Ctrl-C stops it.", flush=True)


def require_free(settings: Settings) -> None:
    """Try the address before anything else is done."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError:
            raise Stop(
                f"Port {settings.port} on {settings.host} can not be used: it is taken or not ours."
                f" Stop what listens there, or choose another: make run PORT={settings.port % 65535 + 1}"
            ) from None


def require_keys(settings: Settings) -> None:
    """Never on an address that others can reach while nobody could be told apart."""
    if settings.is_loopback:
        return
    books = open_books(settings)
    try:
        if not books.keys.any_active():
            raise Stop(
                f"{settings.host} can be reached by others and there is no key yet."
                " Make one (halftone key create --role admin) or listen on 127.0.0.1."
            )
    finally:
        books.close()


def open_files(wanted: int) -> int:
    """Let this process have so many files open, or as many as the system allows; that number."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    return max(allowed, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def serve(settings: Settings) -> None:
    configure(settings.log_level)
    # A connection is an open file, and so are the store and the engine's pipes, which must never go without.
    most = max(1, min(settings.connections, open_files(settings.connections + OWN_FILES) - OWN_FILES))
    uvicorn.run(
        create_app(settings),
        host=settings.host,
        port=settings.port,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        http=guarded_protocol(most=most, each=settings.connections_per_address),
        timeout_graceful_shutdown=10,
    )
