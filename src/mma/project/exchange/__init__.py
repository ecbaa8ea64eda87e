"""Labels in and out of a project, in the formats of other tools. No torch."""
