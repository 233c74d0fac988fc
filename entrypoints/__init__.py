"""One thin module per command; each has main(argv, env) -> exit code."""
