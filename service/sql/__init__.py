"""The SQL front end: from an analyst's text to plans and outer SQL, or to a refusal. Pure: no I/O, no data."""
