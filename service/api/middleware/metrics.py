"""Counters in Prometheus text. Nothing here depends on rows: no durations, no sizes, no per-query label."""

import threading
from collections import Counter
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PROMETHEUS_TEXT = "text/plain; version=0.0.4"


class Metrics:
    """How many responses were sent, by method, route and status."""

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

    def serve(self, port: int) -> Callable[[], None]:
        """On a port of its own, to this machine only; returns what stops it."""
        text = self.text

        class Page(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                found = self.path == "/metrics"
                body = text().encode() if found else b""
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", PROMETHEUS_TEXT)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:
                """Nothing: scrapes are not worth a line."""

        server = ThreadingHTTPServer(("127.0.0.1", port), Page)
        threading.Thread(target=server.serve_forever, name="metrics", daemon=True).start()

        def stop() -> None:
            server.shutdown()
            server.server_close()

        return stop
