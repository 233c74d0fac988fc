"""Names of container images."""

from __future__ import annotations

import re

OF_A_REGISTRY = re.compile(r"^(?:localhost|[^/]*[.:][^/]*)/")


def parts_of_image(reference: str) -> dict[str, str]:
    """Return repository, and tag or digest if the reference has one. A colon after the last slash begins the tag; a file has neither."""
    if is_file(reference):
        return {"repository": reference}
    repository, at, digest = reference.partition("@")
    folder, slash, last = repository.rpartition("/")
    name, colon, tag = last.partition(":")
    return {"repository": f"{folder}{slash}{name}", **({"tag": tag} if colon else {}), **({"digest": digest} if at else {})}


def is_file(reference: str) -> bool:
    """Return True for a file or a folder with an image, False for a name in a registry."""
    return reference.startswith(("/", "./", "../")) or (reference.endswith((".sif", ".sqsh")) and "://" not in reference)


def what_is_wrong(repository: str, tag: str) -> str:
    """Return the fault of an image that a cluster accepts and cannot pull; "" for none. tag: message about a tag or digest beside it."""
    if "://" in repository:
        return f"expected no {repository.partition('://')[0]}://"
    if tag and ":" in repository.rpartition("/")[2]:
        return f"it has a tag, and {tag}: leave one of the two out"
    if re.search("[A-Z]", OF_A_REGISTRY.sub("", repository)):
        return "expected small letters after the registry's name"
    return ""
