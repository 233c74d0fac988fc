"""A report in each of its forms, all of the same values. Pure: text comes out."""
