"""Middleware, which stands around every request: envelope, limits, logs, metrics, traces, polls from memory."""
