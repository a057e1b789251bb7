"""The conformance kit: what a device must do to be trusted, as tests that any backend can run.

From the command line, with a table, a report in HTML and JSON, and the level reached::

    tesserack conform NAME --report DIR

or as tests among others::

    pytest --tesserack-device=NAME --pyargs tesserack.testing.conformance

Areas and levels are data, in ``areas.py``. Needs the extra ``tesserack[test]``.
"""
