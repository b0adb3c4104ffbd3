"""Reading: the text as a checked tree, and what it says at first sight (outputs, groups, aggregate calls)."""
