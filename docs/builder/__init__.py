"""Builds the documentation site; see docs/README.md."""
