"""The page of a report: its template, style and script, and the values that they show. Pure."""
