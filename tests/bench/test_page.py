"""The bench of the page: its arithmetic, and what it says without a browser."""

from __future__ import annotations

from bench import page


def test_the_table_compares_the_same_percentiles():
    table = page.as_table([10.0] * 95 + [50.0] * 5, [20.0] * 95 + [100.0] * 5, 400)
    assert "| alone | 10 ms |" in table
    assert "| ratio | 2.00 | 2.00 |" in table


def test_without_a_browser_it_says_what_it_takes(monkeypatch):
    monkeypatch.setattr(page, "CHROMIUM", None)
    assert "Not measured: it takes chromium" in page.section(1)
