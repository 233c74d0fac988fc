"""Patterns of tokens and keys. Written by tools/secret_patterns.py (make generate) from the rules of detect-secrets 1.5.0.

Copyright Yelp Inc., Apache License 2.0 (LICENSES/detect-secrets.txt). Changed: each repeats a bounded number of times.
Imported only for failures, and for plans with a text that may be a token.
"""

from __future__ import annotations

import re

PATTERNS = (
    r"(?:A3T[A-Z0-9]|ABIA|ACCA|AKIA|ASIA)[0-9A-Z]{16}",
    r"AccountKey=[a-zA-Z0-9+\/=]{88}",
    r"[MNO][a-zA-Z\d_-]{23,25}\.[a-zA-Z\d_-]{6}\.[a-zA-Z\d_-]{27}",
    r"(?:ghp|gho|ghu|ghs|ghr)_[A-Za-z0-9_]{36}",
    r"(?:glpat|gldt|glft|glsoat|glrt)-[A-Za-z0-9_\-]{20}",
    r"GR1348941[A-Za-z0-9_\-]{20}",
    r"glcbt-(?:[0-9a-fA-F]{2}_)?[A-Za-z0-9_\-]{20}",
    r"glimt-[A-Za-z0-9_\-]{25}",
    r"glptt-[A-Za-z0-9_\-]{40}",
    r"glagent-[A-Za-z0-9_\-]{50}",
    r"gloas-[A-Za-z0-9_\-]{64}",
    r"eyJ[A-Za-z0-9-_=]{1,256}\.[A-Za-z0-9-_=]{1,256}\.?[A-Za-z0-9-_.+/=]{0,256}?",
    r"[0-9a-z]{32}-us[0-9]{1}",
    r"pypi-AgEIcHlwaS5vcmc[A-Za-z0-9-_]{70}",
    r"pypi-AgENdGVzdC5weXBpLm9yZw[A-Za-z0-9-_]{70}",
    r"SG\.[a-zA-Z0-9_-]{22}\.[a-zA-Z0-9_-]{43}",
    r"(?i:xox(?:a|b|p|o|s|r)-(?:\d{1,20}-){1,256}[a-z0-9]{1})",
    r"(?i:https://hooks\.slack\.com/services/T[a-zA-Z0-9_]{1,256}/B[a-zA-Z0-9_]{1,256}/[a-zA-Z0-9_]{1})",
    r"sq0csp-[0-9A-Za-z\\\-_]{43}",
    r"(?:r|s)k_live_[0-9a-zA-Z]{24}",
    r"\d{8,10}:[0-9A-Za-z_-]{35}",
    r"AC[a-z0-9]{32}",
    r"SK[a-z0-9]{32}",
)
# Patterns of our own: tokens that are frequent in training jobs.
OWN = (
    r"hf_[A-Za-z0-9]{20}", r"sk-[\w-]{20}", r"github_pat_\w{20}", r"nvapi-[\w-]{20}", r"AIza[\w-]{35}", r"wandb_v1_[\w-]{20}",
    r"(?:gsk|r8|npm)_[A-Za-z0-9]{20}", r"dckr_pat_[\w-]{20}", r"ya29\.[\w-]{20}", r"(?:dop_v1|shpat)_[0-9a-f]{20}",
)  # fmt: skip
# From the beginning of a word to its end: the search stays linear for every text.
TOKENS = re.compile(rf"(?<![A-Za-z0-9])(?=[A-Za-z0-9])(?:{'|'.join((*PATTERNS, *OWN))})[\w.+/=~-]*")
