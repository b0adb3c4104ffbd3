"""The composition root: Settings to Store, Ledger, Catalog, Engine, Answerer, FastAPI. Nothing else constructs them."""

from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass

import sqlalchemy as sa
from anyio import to_thread
from fastapi import FastAPI
from fastapi.middleware.cors import CORSMiddleware

from service import __version__
from service.admin import Administration, AdministrationTools
from service.api import openapi, problems
from service.api.middleware.envelope import Envelope
from service.api.middleware.limits import Limiter
from service.api.middleware.metrics import Metrics
from service.api.middleware.poll_cache import Polls
from service.api.middleware.traces import Traces, exporting_provider
from service.api.routes import admin, console, datasets, docs, estimates, health, queries
from service.api.routes import panels as panel_routes
from service.api.wiring import RouteTools
from service.catalog.imports import Imports
from service.catalog.keys import Keys
from service.catalog.store import Catalog
from service.catalog.tables import key
from service.core.errors import TooBusy
from service.engine.base import Engine, Scratch
from service.engine.duckdb.engine import DuckDBEngine, EngineOptions
from service.engine.duckdb.importing.import_child import ImportOptions
from service.engine.duckdb.importing.importer import DuckDBImporter
from service.engine.duckdb.processes.cage import WALLS
from service.engine.duckdb.processes.child import walls
from service.engine.duckdb.scratch import DuckDBScratch, ScratchOptions
from service.ledger.book import Ledger
from service.privacy.noise.sampling import SecureNoise
from service.readiness import Lookout, Probe
from service.released.dependents import Dependents
from service.released.panels import Panels
from service.released.publish import Publisher
from service.released.store import Answers
from service.settings import Settings
from service.store.database import Store
from service.walk import Answerer, WalkTools
from service.walk.panel_refresh import Refresher, RefreshTools
from service.walk.planner import Planner, PlannerHere
from service.walk.planner_pool import PlannerPool
from service.walk.profiling import Profiler, ProfileTools
from service.walk.promised_time import PromisedTime
from service.walk.release_process import ReleaseProcesses
from service.walk.sized_import import ProfiledSizing

READY_SECONDS = 10.0
MARK = "journal-mark.json"
IMPORT_STEPS = 5  # of the steps that answers leave at: what is seen of an import comes at 0.5 s, 1 s, 2 s, …
WAITING_REQUESTS = 128  # a request that waits for its answer holds a thread
MEMORY_UNITS = {"MB": 10**6, "GB": 10**9, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class Books:
    """Catalog, keys, ledger and administration over one store: all that the command line needs, no engine, no HTTP."""

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
    catalog, keys, ledger = Catalog(store), Keys(store), Ledger(store, settings.data_dir / MARK)
    step_s = IMPORT_STEPS * settings.time_step_ms / 1000
    options = ImportOptions(memory_bytes=memory_bytes(settings.engine_memory), step_s=step_s)
    importer = DuckDBImporter(settings.data_dir, settings.source_folders, options)
    sizing = ProfiledSizing(Profiler(ProfileTools(catalog, ledger, importer, SecureNoise())))
    tools = AdministrationTools(
        catalog, keys, ledger, Panels(store), importer, sizing, Imports(store), Dependents(store)
    )
    return Books(store, catalog, keys, ledger, Administration(tools))


def missing_walls() -> dict[str, str]:
    """Walls around engine processes that this system did not let us build so far, and what each lack means."""
    return {wall: WALLS[wall] for wall in walls.missing()}


def publisher_of(settings: Settings) -> Publisher | None:
    if not settings.publish_url:
        return None
    return Publisher(settings.publish_url, schema=settings.publish_schema, reader=settings.publish_reader or None)


def readiness_of(store: Store, scratch: Scratch, engine: Engine) -> Lookout:
    """The ledger can be written; an engine process answers, and knows how fast it is, which takes seconds at the very
    first start. Now and then, whether anybody asks or not."""

    def write() -> None:
        store.write(lambda tx: tx.execute(sa.update(key).where(key.c.prefix == "").values(name="")))

    def answer() -> None:
        scratch.ping(READY_SECONDS)
        if not engine.knows_its_speed:
            raise TooBusy("the speed of this machine is being measured")

    return Lookout(Probe("ledger", write, every_s=10.0), Probe("engine", answer, every_s=5.0))


@dataclass(frozen=True, slots=True)
class Walk:
    """What answers queries: engine processes, the answerer over them, and the panels that ask by themselves."""

    answerer: Answerer
    answers: Answers
    engine: Engine
    scratch: Scratch
    releasers: ReleaseProcesses
    planner: Planner
    refresher: Refresher
    panels: Panels

    def close(self) -> None:
        """Whoever asks first stops first."""
        for part in (self.refresher, self.answerer, self.planner, self.releasers, self.scratch, self.engine):
            part.close()


def open_walk(settings: Settings, books: Books) -> Walk:
    memory = memory_bytes(settings.engine_memory)
    seconds = settings.query_seconds
    options = EngineOptions(
        workers=settings.engine_workers,
        memory_bytes=memory,
        query_seconds=seconds,
        measured=settings.time_step_ms > 0,  # at 0 nobody waits for a promised time
    )
    engine = DuckDBEngine(settings.data_dir, options)
    scratch = DuckDBScratch(settings.data_dir, ScratchOptions(seconds=settings.outer_seconds))
    planner = PlannerPool(settings.planners) if settings.planners else PlannerHere()
    answers, panels = Answers(books.store), Panels(books.store)
    releasers = ReleaseProcesses((DuckDBEngine.__module__,))
    tools = WalkTools(
        catalog=books.catalog,
        ledger=books.ledger,
        engine=engine,
        scratch=scratch,
        answers=answers,
        noise=SecureNoise(),
        time=PromisedTime(settings.time_step_ms, float(seconds), engine),
        releasers=releasers,
        query_seconds=seconds,
    )
    answerer = Answerer(tools, planner=planner)
    refresh_tools = RefreshTools(
        answerer=answerer,
        answers=answers,
        panels=panels,
        owners=books.keys,
        publisher=publisher_of(settings),
        patience_s=seconds * 2.0,
    )
    return Walk(answerer, answers, engine, scratch, releasers, planner, Refresher(refresh_tools), panels)


def create_app(settings: Settings) -> FastAPI:
    """Everything wired. Opening happens here, closing when the server stops."""
    books = open_books(settings)
    walk = open_walk(settings, books)
    readiness = readiness_of(books.store, walk.scratch, walk.engine)
    parts = RouteTools(
        answerer=walk.answerer,
        answers=walk.answers,
        panels=walk.panels,
        refresher=walk.refresher,
        catalog=books.catalog,
        keys=books.keys,
        administration=books.administration,
        limiter=Limiter(per_minute=settings.requests_per_minute, at_once=settings.concurrent_requests),
        metrics=Metrics() if settings.metrics else None,
        ready=readiness.missing,
    )
    books.administration.start()
    if books.ledger.restored() is None:
        books.ledger.mark()
    books.ledger.recover()

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        to_thread.current_default_thread_limiter().total_tokens = WAITING_REQUESTS
        walk.releasers.warm(settings.engine_workers + 1)  # one more than run, for the place of one that was ended
        walk.refresher.start()
        with ExitStack() as closing:
            if parts.metrics is not None and settings.metrics_port:
                closing.callback(parts.metrics.serve(settings.metrics_port))
            closing.callback(books.close)
            closing.callback(walk.close)
            readiness.start()
            closing.callback(readiness.close)
            yield

    return assemble(settings, parts, lifespan)


def assemble(settings: Settings, parts: RouteTools, lifespan: Callable[..., object] | None = None) -> FastAPI:
    """Routes and middleware around the given parts; tests hand over their own."""
    app = FastAPI(
        title="Halftone",
        version=__version__,
        description="Ordinary aggregate SQL, calibrated noise, and a budget that holds.",
        docs_url=None,
        redoc_url=None,
        openapi_url=None,
        lifespan=lifespan,  # type: ignore[arg-type]
        redirect_slashes=False,
        separate_input_output_schemas=False,  # a declaration that GET shows is one that PUT takes
    )
    app.state.parts = parts
    for router in (queries.router, estimates.router, panel_routes.router, datasets.router, admin.router, health.router):
        app.include_router(router)
    if settings.docs:
        app.include_router(docs.router)
    if settings.console:
        app.include_router(console.console_router())
    problems.handle_errors(app)
    openapi.document(app)
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "PUT", "DELETE"],
            allow_headers=["Authorization", "Content-Type", "Idempotency-Key", "If-None-Match"],
            expose_headers=["ETag", "Location", "Retry-After", "X-Request-Id"],
        )
    app.add_middleware(Polls)
    if settings.traces:
        app.add_middleware(Traces, provider=exporting_provider())
    app.add_middleware(Envelope, body_bytes_max=settings.body_bytes_max, metrics=parts.metrics)
    return app
