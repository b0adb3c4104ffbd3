"""The worst case: from a plan and public sizes to the seconds and bytes that no data of those sizes exceeds."""
