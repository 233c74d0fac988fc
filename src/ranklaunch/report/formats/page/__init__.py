"""HTML page of a report: template, style and script, and the values in it. Pure."""
