"""What is a label worth? Interpolation, exchange rates, advice and forecasts. numpy only; never imports torch."""

from mma.cost.advice import Plan, Prices, cheapest
from mma.cost.answer import Answer, as_json, ask
from mma.cost.columns import ALREADY, NEVER, first_reach, isotonic, totals_needed
from mma.cost.exchange import Exchange, Interval, Need, Ratio, Status, default_targets, exchange
from mma.cost.sources import open_table, paper_sources
from mma.cost.step import Next, Step, next_step
from mma.cost.surface import Forecast, HeldOut, Surface, fit_surface, hold_out
from mma.cost.table import Cell, Table, table_from_cells, table_from_runs

__all__ = [
    "ALREADY",
    "NEVER",
    "Answer",
    "Cell",
    "Exchange",
    "Forecast",
    "HeldOut",
    "Interval",
    "Need",
    "Next",
    "Plan",
    "Prices",
    "Ratio",
    "Status",
    "Step",
    "Surface",
    "Table",
    "as_json",
    "ask",
    "cheapest",
    "default_targets",
    "exchange",
    "first_reach",
    "fit_surface",
    "hold_out",
    "isotonic",
    "next_step",
    "open_table",
    "paper_sources",
    "table_from_cells",
    "table_from_runs",
    "totals_needed",
]
