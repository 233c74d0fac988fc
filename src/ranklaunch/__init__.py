"""ranklaunch: the one container ENTRYPOINT for distributed training.

The Python API (docs/api.md) is make_plan, make_spec, read_report, explain_log and as_json. It is loaded when it is first used:
every start of a job imports this module.
"""

__version__ = "0.2.0"

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
else:

    def __getattr__(name):
        """Return an attribute of the API, and keep it. Raises AttributeError for any other name."""
        if name not in __all__:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        from importlib import import_module  # no import statement: the API imports modules that import this one

        value = globals()[name] = getattr(import_module("ranklaunch.api"), name)
        return value

    def __dir__():
        return sorted({*globals(), *__all__})
