"""The public names of ``traces``."""

from __future__ import annotations

import traces


def test_public_names_exist_once():
    assert len(set(traces.__all__)) == len(traces.__all__)
    for name in traces.__all__:
        assert getattr(traces, name) is not None, name
