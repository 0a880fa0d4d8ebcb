from __future__ import annotations

import pytest

from tests.engine.stage import Stage


@pytest.fixture
def stage(transactional_db: None, settings: object, tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> Stage:
    # The virtual clock runs ORM calls of a test inside its event loop; nothing waits there but the test itself.
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "true")
    settings.MEDIA_ROOT = tmp_path  # type: ignore[attr-defined]
    return Stage()
