"""What is a label worth? Interpolation, exchange rates, advice and forecasts. numpy only; never imports torch."""

from mma.cost.advice import Analysis, Mix, Next, Prices, Step, as_json, ask, cheapest, next_step
from mma.cost.exchange import Exchange, ImagesNeeded, Interval, exchange, first_reach, isotonic
from mma.cost.surface import fit_surface
from mma.cost.table import CostTable, open_table, paper_sources, table_from_runs

__all__ = ["Analysis", "CostTable", "Exchange", "ImagesNeeded", "Interval", "Mix", "Next", "Prices", "Step", "as_json"]
__all__ += ["ask", "cheapest", "exchange", "first_reach", "fit_surface", "isotonic", "next_step", "open_table"]
__all__ += ["paper_sources", "table_from_runs"]
