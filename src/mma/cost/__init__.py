"""What is a label worth? Interpolation, exchange rates, advice and forecasts. numpy only; never imports torch."""

from mma.cost.advice import Analysis, Mix, Next, Prices, Step, as_json, ask, cheapest, next_step
from mma.cost.exchange import (
    ALREADY,
    NEVER,
    Exchange,
    ImagesNeeded,
    Interval,
    Ratio,
    Status,
    default_targets,
    exchange,
    first_reach,
    isotonic,
    totals_needed,
)
from mma.cost.surface import Forecast, HeldOut, Surface, fit_surface, hold_out
from mma.cost.table import CellMean, CostTable, open_table, paper_sources, table_from_cells, table_from_runs

__all__ = [
    "ALREADY",
    "NEVER",
    "Analysis",
    "CellMean",
    "CostTable",
    "Exchange",
    "Forecast",
    "HeldOut",
    "ImagesNeeded",
    "Interval",
    "Mix",
    "Next",
    "Prices",
    "Ratio",
    "Status",
    "Step",
    "Surface",
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
