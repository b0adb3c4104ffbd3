"""What admins declared: datasets, tables, people's keys."""
