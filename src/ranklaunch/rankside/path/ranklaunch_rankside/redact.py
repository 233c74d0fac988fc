"""Removal of likely secrets from texts. The rules hide too much rather than too little: that costs only a gap in a message.

ranklaunch applies finer rules (ranklaunch.redact) whenever it shows a record.
"""

import re

HIDDEN = "***"
_NAME = (
    r"[\w.-]{0,64}(?:password|passwd|passphrase|passcode|pwd|pass|secret|token|credentials?|cookie|jwt|authorization|auth"
    r"|(?:api|access|secret|private|account|signing|encryption|storage|master|license|ssh|deploy)[_-]?key(?:[_-]?id)?|[_.-](?:key|ak|sk|pw))"
)
_NUMBER = r"-?\d{1,9}(?:\.\d{1,9})?(?![\w.-])"  # counts, such as max_token=512
_VALUE = r"""(?!%s)("[^"\n]{0,4096}"|'[^'\n]{0,4096}'|(?:(?:bearer|basic|token)\s{1,4})?[^\s,;'")}\]]+)""" % _NUMBER
_NAMED = re.compile(r"""(?i)(?<![\w.-])(%s['"\]]{0,3}\s{0,8}(?:=>|[:=])\s{0,8})%s""" % (_NAME, _VALUE))
_BEARER = re.compile(r"(?i)\b(bearer\s{1,4})[\w.~+/=-]{6,}")
_URL = re.compile(r"(://)[^/\s:@]{0,256}:?[^/\s@]{0,256}@")
_TOKEN = re.compile(
    r"(?<![A-Za-z0-9])(?:(?:hf_|sk-|[rs]k_live_|gh[opsur]_|github_pat_|gl(?:pat|dt|rt)-|npm_|nvapi-|AIza|pypi-Ag|xox[abopsr]-)[\w-]{8,}"
    r"|(?:AKIA|ASIA)[A-Z0-9]{12,}|eyJ[\w=-]{8,}\.[\w=-]{4,}\.?[\w.=-]*)"
)
_OPTION = re.compile(r"(?i)--?(?:%s)" % _NAME)
_OPTION_AND_VALUE = re.compile(r"""(?i)(?<![\w.-])(--?%s['"]?,?\s{1,4})%s""" % (_NAME, _VALUE))


def hide(text):
    """Return a text with *** in place of likely secrets."""
    text = _URL.sub(r"\1%s@" % HIDDEN, _TOKEN.sub(HIDDEN, text))
    text = _OPTION_AND_VALUE.sub(lambda match: match[1] + HIDDEN, text)
    return _NAMED.sub(lambda match: match[1] + HIDDEN, _BEARER.sub(r"\1" + HIDDEN, text))


def argv(words):
    """Hide secrets in the words of a command line, also in a word after an option such as --password."""
    shown, is_value = [], False
    for word in words:
        shown.append(HIDDEN if is_value and not word.startswith("-") else hide(word))
        is_value = bool(_OPTION.fullmatch(word))
    return shown
