"""What was released: answers that are replayed by plan digest, panels, published result tables."""
