"""What the chaos tests share."""

from __future__ import annotations

import pytest

from java_archive import make_archive


@pytest.fixture(scope="session", autouse=True)
def archive(tmp_path_factory: pytest.TempPathFactory) -> None:
    make_archive(tmp_path_factory.mktemp("archive"))
