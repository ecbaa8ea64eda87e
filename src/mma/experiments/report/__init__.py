"""From run folders to tables, plots and pages."""
