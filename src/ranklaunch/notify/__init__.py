"""Tools that want to know of a job, where one is named: a file of metrics, and a command that is run when something happens."""
