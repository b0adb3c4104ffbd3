"""Noise: its laws, exact samplers of integers, exact sums of them, and the intervals and tails that follow."""
