"""Pricing: from a plan and an amount to what will be drawn, what it costs and how wide it will be."""
