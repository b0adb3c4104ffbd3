"""Row expressions: what the analyst computes per row, compiled to trees of ours with type, range and codes."""
