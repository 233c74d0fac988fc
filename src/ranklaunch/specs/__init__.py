"""A job's specification in the form of the engine that runs it."""
