"""What callers get: one model per body, for the OpenAPI document, generated clients and tests.

No response is made from these at run time. Routes send bytes that are stored or built elsewhere, and a test compares
every operation's real bodies with its model (tests/e2e/test_responses.py; docs/decisions/0033).
"""
