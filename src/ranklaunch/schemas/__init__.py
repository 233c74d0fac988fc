"""Shape of ranklaunch's JSON files, as types: source of the JSON Schemas in docs/schemas/, and help for Python programs that read such a
file. No command imports these modules.

A class of another module (Culprit, File) means an object with the fields of this class. A name reserved by Python has an underscore at
its end.
"""
