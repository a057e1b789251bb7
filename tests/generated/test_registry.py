"""Every public operator is covered by generated tests, or says why not."""

from __future__ import annotations

import pytest
from tesserack.testing import cases, samples


def test_operators_without_samples_are_listed(reasons_without_samples: dict[str, str]) -> None:
    """A new operator needs samples or a reason; a reason goes when samples come."""
    functional = [name for name, record in samples.records().items() if record["variant"] == "functional"]
    assert {name for name in functional if not samples.samples(name)} == set(reasons_without_samples)
    assert all(reasons_without_samples.values())


def test_known_gaps_name_tests(request: pytest.FixtureRequest, unused_gaps: list[str]) -> None:
    """A gap that no test answers to is a leftover."""
    collected = {item.path.name for item in request.session.items}
    if "test_forms.py" in collected and not request.config.getoption("-k"):
        assert unused_gaps == []


def test_every_sample_belongs_to_an_operator() -> None:
    """Tables name operators that exist."""
    from tesserack.testing import _sample_table as tables

    known = set(samples.records())
    named = {
        *tables.TABLE,
        *tables.ALIASES,
        *tables.ALIASES.values(),
        *tables.DOMAINS,
        *tables.DTYPES,
        *tables.NONE_NEEDED,
    }
    assert sorted(named - known) == []
    assert all(any(cases.claims(n, s, d) for d in cases.DTYPES) for n in tables.TABLE for s in samples.samples(n))


def test_every_operator_is_documented() -> None:
    """Public operators say what they do."""
    assert [name for name, record in samples.records().items() if not record["doc"].strip()] == []
