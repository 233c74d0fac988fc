"""Writes a secret and an escape code, and fails with them."""

TOKEN = "hf_" + "aB" * 17
print(f"downloading with --token hunter2 and {TOKEN}", flush=True)
msg = f"\x1b[31m401\x1b[0m \x1b[2Jfor https://user:hunter2@host/ with {TOKEN}"
raise ValueError(msg)
