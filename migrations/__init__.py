"""The store's schema, revision by revision. Part of the package: `halftone migrate` needs no checkout."""
