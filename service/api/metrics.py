"""Counters in Prometheus text. Nothing here depends on rows: no durations, no sizes, no per-query label."""

import threading
from collections import Counter


class Metrics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._responses: Counter[tuple[str, str, int]] = Counter()

    def count(self, method: str, route: str, status: int) -> None:
        with self._lock:
            self._responses[method, route, status] += 1

    def text(self) -> str:
        """Responses by route and status, in the exposition format."""
        lines = [
            "# HELP halftone_responses_total Responses sent, by method, route and status.",
            "# TYPE halftone_responses_total counter",
        ]
        with self._lock:
            counted = sorted(self._responses.items())
        for (method, route, status), number in counted:
            lines.append(f'halftone_responses_total{{method="{method}",route="{route}",status="{status}"}} {number}')
        return "\n".join(lines) + "\n"
