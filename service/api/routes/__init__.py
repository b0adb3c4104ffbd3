"""The routes: one module per group of addresses; each hands the request on and shapes the response."""
