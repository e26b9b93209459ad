"""Fills attention-step-by-step.md with what headlane computes."""

import sys
from pathlib import Path

from figures import attention_translation, attention_worked, page

values = {**attention_worked.values(), **attention_translation.values()}
page.fill(Path(sys.argv[1]) / "attention-step-by-step.md", values)
