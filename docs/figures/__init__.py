"""Figures and tables of the documentation site, computed when it is built."""
