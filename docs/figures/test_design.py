"""The pictures of design.md find what they read in the sources."""

from __future__ import annotations

import re

from . import design

ROOT = design.SOURCES.parent


def test_sizes_are_found_in_the_sources():
    assert design.constant("panel_columns") == 2 * design.constant("lanes")
    assert all(
        rows >= 1 and columns % design.constant("lanes") == 0 for rows, columns in design.tiles().values()
    )


def test_every_include_points_down_in_the_picture_of_the_folders():
    design.check_house()


def test_files_that_the_page_names_exist():
    page = (ROOT / "docs" / "site" / "design.md").read_text(encoding="utf-8")
    names = re.findall(r"`(?:src/)?([a-z_]+/(?:[a-z_]+\.[ch]pp)?)`", page)
    assert len(names) > 5
    for name in names:
        assert (design.SOURCES / name).exists() or (ROOT / "include" / name).exists(), name


def test_pictures_have_text_alternatives():
    for name, value in design.values().items():
        assert value.count("<svg ") == value.count('aria-label="'), name
