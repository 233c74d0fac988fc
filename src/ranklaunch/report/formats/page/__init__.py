"""The parts of a report as one page of HTML: each makes text of values, and has no effects."""
