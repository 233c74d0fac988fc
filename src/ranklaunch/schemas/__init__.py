"""Shape of ranklaunch's JSON files, as types: the source of the JSON Schemas of docs/schemas/, and for readers of such a file in Python.
No command imports these modules.

A value written without change (a Culprit, a File) stands here by its own class, and means an object of its fields. A name reserved by
Python has an underscore at its end.
"""
