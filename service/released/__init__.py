"""Released answers: replay by plan digest, panels."""
