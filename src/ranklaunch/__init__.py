"""ranklaunch: the one container ENTRYPOINT for distributed training.

The Python API (docs/api.md) is make_plan, make_spec, read_report, explain_log and as_json. It is loaded when it is first used:
every start of a job imports this module.
"""

__all__ = [
    "Answer", "ConfigError", "Plan", "RanklaunchError", "Report", "UsageError", "WaitError",
    "__version__", "as_json", "explain_log", "make_plan", "make_spec", "read_report",
]  # fmt: skip

TYPE_CHECKING = False  # type checkers take this name for true; the module typing is slow to import

if TYPE_CHECKING:
    from ranklaunch.api import (
        Answer,
        ConfigError,
        Plan,
        RanklaunchError,
        Report,
        UsageError,
        WaitError,
        as_json,
        explain_log,
        make_plan,
        make_spec,
        read_report,
    )
    from ranklaunch.version import __version__
else:

    def __getattr__(name):
        """Return an attribute of the API, and keep it. Raises AttributeError for any other name."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module

        module = "ranklaunch.version" if name == "__version__" else "ranklaunch.api"
        value = globals()[name] = getattr(import_module(module), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
