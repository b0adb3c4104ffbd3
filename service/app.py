"""The composition root: Settings to Store, Ledger, Catalog, Engine, Answerer, FastAPI. Nothing else constructs them."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from service import __version__
from service.admin import Administration
from service.answer import Answerer, Means
from service.answer.ladder import Ladder
from service.answers.store import Answers
from service.api import admin, datasets, docs, estimates, health, problems, queries
from service.api.examples import PROBLEM_RESPONSES, Problem
from service.api.frame import Frame
from service.api.limits import Limiter
from service.api.metrics import Metrics
from service.api.parts import Parts
from service.catalog.keys import Keys
from service.catalog.store import Catalog
from service.engine.duckdb import DuckDBEngine, EngineOptions
from service.engine.prepare import Importer, ImportOptions
from service.engine.scratch import Scratch
from service.ledger.book import Ledger
from service.ledger.tables import head
from service.privacy.sampling import SecureNoise
from service.settings import Settings
from service.store.database import Store

READY_SECONDS = 10.0
MEMORY_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class Books:
    """What the command line needs: no engine, no HTTP."""

    store: Store
    catalog: Catalog
    keys: Keys
    ledger: Ledger
    administration: Administration

    def close(self) -> None:
        self.administration.close()
        self.ledger.close()
        self.store.close()


def memory_bytes(text: str) -> int:
    digits = text.rstrip("MGiB")
    return int(digits) * MEMORY_UNITS[text[len(digits) :]]


def open_books(settings: Settings) -> Books:
    """Ledger, catalog and importer over a store that has been migrated."""
    store = Store(settings.store_url)
    catalog, keys, ledger = Catalog(store), Keys(store), Ledger(store)
    folders = settings.source_folders
    importer = Importer(settings.data_dir, folders, ImportOptions(memory_bytes=memory_bytes(settings.engine_memory)))
    return Books(store, catalog, keys, ledger, Administration(catalog, keys, ledger, importer, folders))


def readiness(store: Store, scratch: Scratch) -> Callable[[], list[str]]:
    """A check that writes to the store and asks an engine process, and says which of them does not answer."""

    def ledger() -> None:
        store.write(lambda tx: tx.execute(sa.update(head).values(number=head.c.number)))

    def engine() -> None:
        scratch.run("SELECT 1 AS one", {}, (), "", READY_SECONDS)

    def check() -> list[str]:
        missing = []
        for probe in (ledger, engine):
            try:
                probe()
            except Exception:
                missing.append(probe.__name__)
        return missing

    return check


def create_app(settings: Settings) -> FastAPI:
    """Everything wired. Opening happens here, closing when the server stops."""
    books = open_books(settings)
    options = EngineOptions(
        workers=settings.engine_workers,
        memory_bytes=memory_bytes(settings.engine_memory),
        query_seconds=settings.query_seconds,
    )
    engine = DuckDBEngine(settings.data_dir, options)
    scratch = Scratch(settings.data_dir)
    ladder = Ladder(settings.time_step_ms, settings.query_seconds * 1000, settings.time_mode)
    answerer = Answerer(
        Means(
            catalog=books.catalog,
            ledger=books.ledger,
            engine=engine,
            scratch=scratch,
            answers=Answers(books.store),
            noise=SecureNoise(),
            ladder=ladder,
            query_seconds=settings.query_seconds,
        )
    )
    metrics = Metrics() if settings.metrics else None
    limiter = Limiter(per_minute=settings.requests_per_minute, at_once=settings.concurrent_requests)
    parts = Parts(
        answerer, books.catalog, books.keys, books.administration, limiter, metrics, readiness(books.store, scratch)
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with ExitStack() as closing:
            for part in (books, engine, scratch, answerer):
                closing.callback(part.close)
            yield

    books.catalog.fail_unfinished_imports()
    books.ledger.recover()
    return assemble(settings, parts, lifespan)


def assemble(settings: Settings, parts: Parts, lifespan: Callable[..., object] | None = None) -> FastAPI:
    """Routes and middleware around the given parts; tests hand over their own."""
    app = FastAPI(
        title="Halftone",
        version=__version__,
        description="Ordinary aggregate SQL, calibrated noise, and a budget that holds.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,  # type: ignore[arg-type]
        responses=PROBLEM_RESPONSES,
        redirect_slashes=False,
    )
    app.state.parts = parts
    for router in (queries.router, estimates.router, datasets.router, admin.router, health.router):
        app.include_router(router)
    if settings.docs:
        app.include_router(docs.router)
    problems.install(app)
    document_problems(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-Id"],
        )
    app.add_middleware(Frame, body_bytes_max=settings.body_bytes_max, metrics=parts.metrics)
    return app


def document_problems(app: FastAPI) -> None:
    """The OpenAPI document names one Problem for all errors, FastAPI's own validation shape for none."""
    generate = app.openapi

    def openapi() -> dict[str, object]:
        if app.openapi_schema is None:
            document = generate()
            schemas = document.setdefault("components", {}).setdefault("schemas", {})
            problem = Problem.model_json_schema(ref_template="#/components/schemas/{model}")
            schemas.update(problem.pop("$defs", {}))
            schemas["Problem"] = problem
            for unused in ("HTTPValidationError", "ValidationError"):
                schemas.pop(unused, None)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]
