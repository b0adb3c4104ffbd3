"""Child processes: how they are caged, spoken to, pooled and shared between analysts."""
