"""A small Python client: ask, estimate, look at datasets; answers come with their intervals.

from service.client import Client
answer = Client("http://127.0.0.1:8000", key).query("shop", "SELECT COUNT(*) AS n FROM customers", epsilon="0.1")
answer.records()      # [{"n": 59987, "n_low_95": 59957.0, "n_high_95": 60017.0}]
answer.clipped_share  # {"n": 0.0}: the bounds leave nothing out; intervals contain the noise alone
answer.to_pandas()    # a DataFrame, when pandas is installed
"""

import time
import uuid
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import httpx
import pyarrow as pa

TIMES = (pa.date32(), pa.timestamp("us"))
ARROW_TYPES = {
    "BOOLEAN": pa.bool_(), "BIGINT": pa.int64(), "INTEGER": pa.int64(), "DOUBLE": pa.float64(),
    "DECIMAL": pa.float64(), "VARCHAR": pa.string(), "DATE": pa.date32(), "TIMESTAMP": pa.timestamp("us"),
}  # fmt: skip


class Refused(Exception):
    """The service said no. `code` is stable, `budget_spent` tells whether it cost anything."""

    def __init__(self, problem: dict[str, Any]) -> None:
        super().__init__(problem_in_words(problem))
        self.problem = problem
        self.code = str(problem.get("code", "unknown"))
        self.budget_spent = bool(problem.get("budget_spent", False))


def problem_in_words(problem: dict[str, Any]) -> str:
    """What was refused, where it stands in the SQL, and what to write instead."""
    said = f"{problem.get('title', 'Refused')}: {problem.get('detail', '')}"
    if "line" in problem and "column" in problem:
        said += f" (line {problem['line']}, column {problem['column']})"
    return said + (f"\nRemedy: {problem['remedy']}" if problem.get("remedy") else "")


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer as the service sent it."""

    body: dict[str, Any]

    @property
    def names(self) -> list[str]:
        return [column["name"] for column in self.body["columns"]]

    @property
    def rows(self) -> list[list[Any]]:
        return list(self.body["rows"])

    @property
    def clipped_share(self) -> dict[str, float | None]:
        """Per value, at most which share its bounds leave out; None: no share can be told. No interval contains it."""
        return {each["name"]: each.get("clipped_share") for each in self.body["columns"] if each["role"] == "value"}

    @property
    def clipped(self) -> dict[str, str]:
        """The same in words, of values of which something may be left out."""
        found = {each["name"]: each.get("clipped") for each in self.body["columns"] if each["role"] == "value"}
        return {name: said["words"] for name, said in found.items() if said and said["lost"] != [0, 0]}

    def __str__(self) -> str:
        """The records, and below them what their bounds may leave out."""
        told = [f"{name}: {words}" for name, words in self.clipped.items()]
        return "\n".join([*map(str, self.records()), *told])

    def records(self) -> list[dict[str, Any]]:
        """One dictionary a row, with {name}_low_95 and {name}_high_95 beside every value."""
        found = []
        for row, low, high in zip(self.body["rows"], self.body["low_95"], self.body["high_95"], strict=True):
            record: dict[str, Any] = {}
            for i, column in enumerate(self.body["columns"]):
                record[column["name"]] = row[i]
                if column["role"] == "value":
                    record[f"{column['name']}_low_95"], record[f"{column['name']}_high_95"] = low[i], high[i]
            found.append(record)
        return found

    def to_arrow(self) -> pa.Table:
        """Typed as the answer says, with days and moments as such; the columns are there without rows too."""
        made: dict[str, pa.Array] = {}
        for at, column in enumerate(self.body["columns"]):
            name, kind = column["name"], ARROW_TYPES.get((column["type"] or "").split("(")[0])
            made[name] = _array([row[at] for row in self.body["rows"]], kind)
            if column["role"] == "value":
                side = kind if kind in TIMES else pa.float64()
                for end in ("low_95", "high_95"):
                    made[f"{name}_{end}"] = _array([row[at] for row in self.body[end]], side)
        return pa.table(made)

    def to_pandas(self) -> Any:
        return self.to_arrow().to_pandas()


class Client:
    """Every query gets its own Idempotency-Key, so a lost connection can be retried without paying twice."""

    def __init__(self, url: str, key: str, *, timeout_s: float = 120.0, transport: Any = None) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._http = httpx.Client(base_url=url, headers=headers, timeout=timeout_s, transport=transport)

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._http.close()

    def query(self, dataset: str, sql: str, **request: Any) -> Answer:
        """Ask and wait. `request`: epsilon, rho, share, accuracy, delta, bounds … as in docs/api.md."""
        body = {"dataset": dataset, "sql": sql, **request}
        headers = {"Idempotency-Key": str(uuid.uuid4())}
        try:
            response = self._http.post("/v1/queries", json=body, headers=headers)
        except httpx.TransportError:
            response = self._http.post("/v1/queries", json=body, headers=headers)
        while response.status_code == 202:
            time.sleep(0.5)
            response = self._http.get(response.headers["Location"])
        return Answer(_object(response))

    def estimate(self, dataset: str, sql: str, **request: Any) -> dict[str, Any]:
        return _object(self._http.post("/v1/estimates", json={"dataset": dataset, "sql": sql, **request}))

    def datasets(self) -> list[dict[str, Any]]:
        found = _checked(self._http.get("/v1/datasets"))
        assert isinstance(found, list)
        return found

    def dataset(self, name: str) -> dict[str, Any]:
        return _object(self._http.get(f"/v1/datasets/{name}"))

    def budget(self, name: str) -> dict[str, Any]:
        return _object(self._http.get(f"/v1/datasets/{name}/budget"))

    def panel(self, name: str, dataset: str | None = None) -> Answer:
        """The last good answer of a panel; before its first refresh it has no rows and no columns. `dataset` says
        which is meant where the key reads several with a panel of that name."""
        named = {} if dataset is None else {"dataset": dataset}
        shown = _object(self._http.get(f"/v1/panels/{name}", params=named))
        return Answer({"columns": [], "rows": [], "low_95": [], "high_95": []} | shown)


def _array(cells: list[Any], kind: Any) -> pa.Array:
    return pa.array(cells, pa.string()).cast(kind) if kind in TIMES else pa.array(cells, kind)


def _object(response: httpx.Response) -> dict[str, Any]:
    body = _checked(response)
    assert isinstance(body, dict)
    return body


def _checked(response: httpx.Response) -> Any:
    try:
        body = response.json()
    except ValueError:
        body = {"title": "No JSON", "detail": f"status {response.status_code}"}
    if response.status_code >= 400:
        raise Refused(body)
    return body
