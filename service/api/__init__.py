"""The HTTP interface: requests in, responses out; it decides nothing."""
