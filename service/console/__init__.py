"""The web page: files that service/api/routes/console.py serves as they lie here. No build step, no dependencies.

Only what is listed is served and packaged; tests/console compares the list with the folder.
"""

PAGE = "index.html"
FILES = {
    PAGE: "text/html; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "admin.js": "text/javascript; charset=utf-8",
    "answer.js": "text/javascript; charset=utf-8",
    "api.js": "text/javascript; charset=utf-8",
    "ask.js": "text/javascript; charset=utf-8",
    "books.js": "text/javascript; charset=utf-8",
    "budget.js": "text/javascript; charset=utf-8",
    "chart.js": "text/javascript; charset=utf-8",
    "clipped.js": "text/javascript; charset=utf-8",
    "console.js": "text/javascript; charset=utf-8",
    "data.js": "text/javascript; charset=utf-8",
    "defaults.js": "text/javascript; charset=utf-8",
    "dom.js": "text/javascript; charset=utf-8",
    "estimate.js": "text/javascript; charset=utf-8",
    "events.js": "text/javascript; charset=utf-8",
    "history.js": "text/javascript; charset=utf-8",
    "keep.js": "text/javascript; charset=utf-8",
    "keys.js": "text/javascript; charset=utf-8",
    "panels.js": "text/javascript; charset=utf-8",
    "request.js": "text/javascript; charset=utf-8",
}
