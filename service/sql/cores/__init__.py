"""Plans: the keys, measures and aggregates of one private core, put together."""
