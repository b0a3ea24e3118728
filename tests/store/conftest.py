"""Before any test of the room imports the conformance class: its assertions are to be readable."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("rewarm.store.conformance")
