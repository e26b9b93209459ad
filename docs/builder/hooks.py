"""MkDocs hooks: the pages that scripts write are put into the navigation."""

from pathlib import Path


def on_config(config):
    """Replaces `{title: folder/}` in the navigation with the pages of the folder, index first."""
    config["nav"] = [expanded(item, Path(config["docs_dir"])) for item in config["nav"]]
    return config


def expanded(item, pages):
    if not isinstance(item, dict):
        return item
    ((title, value),) = item.items()
    if isinstance(value, list):
        return {title: [expanded(entry, pages) for entry in value]}
    if not value.endswith("/"):
        return item
    names = sorted(path.name for path in (pages / value).glob("*.md") if path.name != "index.md")
    index = ["index.md"] if (pages / value / "index.md").exists() else []
    return {title: [value + name for name in index + names]}
