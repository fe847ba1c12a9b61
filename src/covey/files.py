"""Files that appear whole or not at all."""

import os
from pathlib import Path


def replace(path: Path, content: bytes) -> None:
    """Write `path` so that a reader sees the old content or the new one, never a part."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
