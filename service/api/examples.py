"""Examples for the OpenAPI document. They work when pasted against the demo data (tests/e2e runs them)."""

from fastapi import Body
from fastapi.openapi.models import Example

QUERIES: dict[str, Example] = {
    "count": {
        "summary": "Customers per country (declared keys, pure epsilon)",
        "value": {
            "dataset": "shop",
            "sql": "SELECT country, COUNT(*) AS n FROM customers GROUP BY country",
            "epsilon": "0.1",
        },
    },
    "average": {
        "summary": "Average age per country",
        "value": {
            "dataset": "shop",
            "sql": "SELECT country, COUNT(*) AS n, AVG(age) AS age FROM customers GROUP BY country",
            "epsilon": "0.5",
        },
    },
    "total": {
        "summary": "Turnover by status, one person's orders bounded",
        "value": {
            "dataset": "shop",
            "sql": "SELECT status, SUM(amount) AS turnover FROM orders GROUP BY status ORDER BY turnover DESC",
            "epsilon": "0.5",
            "bounds": {"rows_per_unit": 10},
        },
    },
}  # fmt: skip

QUERY_EXAMPLES = Body(openapi_examples=QUERIES)

ESTIMATE_EXAMPLES = Body(
    openapi_examples={
        **QUERIES,
        "list": {
            "summary": "Two questions together",
            "value": {"queries": [QUERIES["count"]["value"], QUERIES["average"]["value"]]},
        },
    }
)
