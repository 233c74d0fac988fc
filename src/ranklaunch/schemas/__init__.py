"""What the JSON is like that ranklaunch writes, as types: from these the JSON Schemas of docs/schemas/ are made, and who reads such a file
in Python may use them. No command imports them.

A value that is written as it is (a Culprit, a File) stands here by its own class, and means an object of its fields. A name that Python
keeps for itself has an underscore at its end.
"""
