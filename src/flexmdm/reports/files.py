"""Files for machines."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from rich.console import Console


def write_json(file: Path, content: Any) -> None:
    """Write a JSON file, its folder included, and print where it is to standard error."""
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")
    Console(stderr=True).print(f"written to {file}", markup=False, highlight=False, soft_wrap=True)
