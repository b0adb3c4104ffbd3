"""Everything that a deployment may choose, read from the environment once.

Each value is checked where it is read; a refusal says what to change. Nothing else of the service
looks at the environment. docs/operating.md has a heading for every setting (tests/test_docs.py).
"""

import importlib.util
import ipaddress
import os
import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, field_validator
from pydantic_settings import BaseSettings, NoDecode, SettingsConfigDict

MEMORY = re.compile(r"\d{1,6}(MB|GB|MiB|GiB)", re.ASCII)
ORIGIN = re.compile(r"https?://[A-Za-z0-9.\-\[\]:]+")
STORES = ("sqlite:///", "postgresql+psycopg://")
TRACE_PACKAGES = ("opentelemetry.sdk", "opentelemetry.exporter.otlp")


class SettingsRefused(Exception):
    """Start-up can not go on; the message is one sentence per setting that must change."""


class Settings(BaseSettings):
    """One frozen object; `HALFTONE_` and the upper-case field name make the variable's name."""

    model_config = SettingsConfigDict(env_prefix="HALFTONE_", frozen=True, extra="ignore", env_ignore_empty=True)

    data_dir: Path = Path("data")
    ledger_url: str = ""
    sources: Annotated[tuple[Path, ...], NoDecode] = ()
    host: str = "127.0.0.1"
    port: int = Field(default=8000, ge=1, le=65535)

    engine_workers: int = Field(default=2, ge=1, le=64)
    engine_memory: str = "4GB"
    query_seconds: int = Field(default=60, ge=1, le=3600)
    outer_seconds: int = Field(default=5, ge=1, le=600)
    planners: int = Field(default=2, ge=0, le=64)
    time_step_ms: int = Field(default=100, ge=0, le=60_000)

    body_bytes_max: int = Field(default=262_144, ge=1024, le=16 * 1024 * 1024)
    requests_per_minute: int = Field(default=600, ge=1, le=1_000_000)
    concurrent_requests: int = Field(default=8, ge=1, le=1000)
    connections: int = Field(default=1000, ge=1, le=100_000)
    connections_per_address: int = Field(default=64, ge=0, le=100_000)
    cors_origins: Annotated[tuple[str, ...], NoDecode] = ()
    docs: bool = True
    console: bool = True
    metrics: bool = False
    traces: bool = False
    metrics_port: int = Field(default=0, ge=0, le=65535)
    publish_url: str = ""
    publish_schema: Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]{0,62}$")] = "halftone_panels"
    publish_reader: Annotated[str, Field(pattern=r"^([a-z][a-z0-9_]{0,62})?$")] = ""
    log_level: Literal["debug", "info", "warning", "error"] = "info"

    @field_validator("sources", mode="before")
    @classmethod
    def _folders(cls, value: Any) -> Any:
        return tuple(part for part in value.split(os.pathsep) if part) if isinstance(value, str) else value

    @field_validator("cors_origins", mode="before")
    @classmethod
    def _origins(cls, value: Any) -> Any:
        return tuple(part.strip() for part in value.split(",") if part.strip()) if isinstance(value, str) else value

    @field_validator("cors_origins")
    @classmethod
    def _exact_origins(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for origin in value:
            if not ORIGIN.fullmatch(origin):
                raise ValueError(f"{origin!r} is no exact origin; write scheme and host, like https://example.org")
        return value

    @field_validator("engine_memory")
    @classmethod
    def _memory(cls, value: str) -> str:
        if not MEMORY.fullmatch(value):
            raise ValueError("write a number and MB or GB, like 1GB")
        return value

    @field_validator("ledger_url")
    @classmethod
    def _store(cls, value: str) -> str:
        if value and not value.startswith(STORES):
            raise ValueError(f"must start with {' or '.join(STORES)}")
        return value

    @field_validator("traces")
    @classmethod
    def _trace_packages(cls, value: bool) -> bool:
        if value and any(not _installed(name) for name in TRACE_PACKAGES):
            raise ValueError("traces need more packages; install halftone[traces], or leave it false")
        return value

    @field_validator("publish_url")
    @classmethod
    def _publish(cls, value: str) -> str:
        if value and not value.startswith("postgresql+psycopg://"):
            raise ValueError("must start with postgresql+psycopg://")
        return value

    @property
    def store_url(self) -> str:
        """Where ledger, catalog and answers live; an SQLite file in the data folder unless told otherwise."""
        return self.ledger_url or f"sqlite:///{self.data_dir.absolute() / 'ledger.sqlite'}"

    @property
    def source_folders(self) -> tuple[Path, ...]:
        return self.sources or (self.data_dir / "sources",)

    @property
    def is_loopback(self) -> bool:
        if self.host == "localhost":
            return True
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return False


def _installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:
        return False


def read_settings(**overrides: Any) -> Settings:
    """Settings from the environment; `overrides` are the command line's. Refuses in sentences."""
    given = {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**given)
    except ValidationError as refused:
        lines = []
        for error in refused.errors(include_url=False, include_input=False):
            name = str(error["loc"][0]) if error["loc"] else "?"
            message = error["msg"].removeprefix("Value error, ")
            lines.append(f"HALFTONE_{name.upper()}: {message}.")
        raise SettingsRefused("\n".join(lines)) from None
