#!/bin/sh
# Installs ranklaunch into an environment of its own and puts its command on PATH. Every Dockerfile here runs it; any image's may.
#
#     sh install.sh [--python PYTHON] [--prefix FOLDER] [--bin FOLDER] [--yaml] SOURCE
#
# SOURCE is one of
#   - ranklaunch's wheel, a folder with it, or a checkout;
#   - a version, as 0.2.0, which pip gets from its index.
# --yaml installs PyYAML too, for `ranklaunch spec --values FILE.yaml`. Where wheels of Jinja2 and MarkupSafe (and, with --yaml, of PyYAML)
# lie beside ranklaunch's, no network is needed; else pip gets these from its index.
#
# PYTHON (python3) is 3.9 or newer and can make virtual environments. Without root rights, give folders that you may write. The prefix
# (/opt/ranklaunch) is a folder for ranklaunch alone: new, empty, or with an earlier ranklaunch, which is replaced.
set -eu

PYTHON=python3
PREFIX=/opt/ranklaunch
BIN=/usr/local/bin
EXTRA=
MARK=.of-ranklaunch  # in the prefix, before anything else is

# Everyone may read what it makes, whatever the umask is: the container's user is rarely the one that installs.
main() {
    umask 022
    unset CDPATH # with it, cd writes where it goes, or goes elsewhere
    read_words "$@"
    check_python
    check_folders
    make_environment
    write_command
    compile_for_ranks
    ln -sf "$PREFIX/bin/ranklaunch" "$BIN/ranklaunch"
    try_it
}

stop() {
    echo "install.sh: $1" >&2
    exit 1
}

read_words() {
    while [ $# -gt 0 ]; do
        case $1 in
        --yaml) EXTRA='[yaml]' ;;
        --python | --prefix | --bin)
            [ $# -gt 1 ] || stop "$1: expected a value after it"
            set_option "$1" "$2"
            shift
            ;;
        -*) stop "$1: expected --python, --prefix or --bin with a value, or --yaml, and then a wheel, a folder or a version" ;;
        *) break ;;
        esac
        shift
    done
    [ $# -gt 0 ] || stop "expected a wheel of ranklaunch, a folder with one, a checkout, or a version as 0.2.0"
    [ $# -eq 1 ] || stop "$2: expected nothing after $1; options stand before it"
    find_source "$1"
}

set_option() {
    case $1 in
    --python) PYTHON=$2 ;;
    --prefix) PREFIX=$2 ;;
    --bin) BIN=$2 ;;
    esac
}

# A file or folder wins over a version of the same name. SOURCE is empty for a version.
find_source() {
    SOURCE='' VERSION='' BESIDE=/nowhere
    if [ ! -e "$1" ] && is_version "$1"; then
        VERSION=$1
        return
    fi
    [ -e "$1" ] || stop "$1: there is no such file or folder; a version is written as 0.2.0"
    case $1 in
    *.whl) SOURCE=$1 ;;
    *) find_wheel "$1" ;;
    esac
    [ -f "$SOURCE" ] || [ -f "$SOURCE/pyproject.toml" ] || stop "$1: expected ranklaunch-*.whl or pyproject.toml in it"
    BESIDE=$(dirname "$SOURCE")
}

is_version() {
    case $1 in
    *[!0-9a-z.+!]*) return 1 ;;
    [0-9]*) return 0 ;;
    *) return 1 ;;
    esac
}

# The wheel in a folder, else the folder itself, which may be a checkout. Of several, the first by its name may be the oldest.
find_wheel() {
    SOURCE=$1
    set -- "$1"/ranklaunch-*.whl
    [ $# -eq 1 ] || stop "$SOURCE: $# wheels of ranklaunch; expected one, so remove the others or name it: $*"
    [ ! -e "$1" ] || SOURCE=$1
}

first_of() {
    [ -e "$1" ] && echo "$1"
}

check_python() {
    command -v "$PYTHON" >/dev/null || stop "$PYTHON: not found; name the Python by --python"
    [ "$("$PYTHON" -I -c 'import sys; print(sys.version_info >= (3, 9))')" = True ] ||
        stop "$PYTHON: too old, or broken; ranklaunch needs Python 3.9 or newer"
    "$PYTHON" -I -c 'import ensurepip, venv' 2>/dev/null ||
        stop "$PYTHON cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
}

check_folders() {
    case $PREFIX in /*) ;; *) stop "--prefix $PREFIX: expected an absolute path" ;; esac
    case $PREFIX in *[!A-Za-z0-9/._+-]*) stop "--prefix $PREFIX: only letters, digits and /._+- can stand in a script's first line" ;; esac
    case $PREFIX/ in */./* | */../*) stop "--prefix $PREFIX: expected a path without . and .." ;; esac
    PREFIX=$(plain "$PREFIX") BIN=$(plain "$BIN")
    [ -n "$PREFIX" ] || stop "--prefix /: expected a folder of its own"
    [ ! -L "$PREFIX" ] || stop "--prefix $PREFIX: that is a link, where no environment can be made; name the folder itself"
    [ "$BIN" != "$PREFIX/bin" ] || stop "--bin $BIN: that is the environment's own; name a folder of PATH"
    [ ! -d "$BIN/ranklaunch" ] || stop "--bin $BIN: there is a folder at $BIN/ranklaunch, where the command's link belongs"
    [ ! -e "$PREFIX/" ] || check_prefix
    { mkdir -p "$PREFIX" "$BIN/" && [ -w "$PREFIX" ] && [ -w "$BIN/" ]; } || stop "choose folders that you may write: --prefix, --bin"
}

# Without a slash that says nothing.
plain() {
    echo "$1" | sed 's#//*#/#g; s#/$##'
}

# What is in it will be removed.
check_prefix() {
    if [ -n "$SOURCE" ]; then
        case $(place_of "$SOURCE")/ in "$(place_of "$PREFIX/")"/*) stop "--prefix $PREFIX: $SOURCE is in it, and would be removed" ;; esac
    fi
    [ -z "$(ls -A "$PREFIX/")" ] || is_earlier || stop "--prefix $PREFIX: there is something else in it, which would be removed; name a new folder"
}

# Also of one that failed or was interrupted, wherever that was.
is_earlier() {
    { [ -f "$PREFIX/$MARK" ] && [ ! -L "$PREFIX/$MARK" ]; } || is_environment
}

is_environment() {
    [ -f "$PREFIX/pyvenv.cfg" ] && [ -f "$PREFIX/bin/ranklaunch" ] && [ "$(head -n 1 "$PREFIX/bin/ranklaunch")" = "$(first_line)" ]
}

first_line() {
    printf '#!%s/bin/python -I\n' "$PREFIX"
}

# Of a file or folder, without links.
place_of() {
    if [ -d "$1" ]; then (cd "$1" && pwd -P); else echo "$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")"; fi
}

# -I: variables and folders that are meant for the training program's Python are not for this one. Settings of pip's index and proxies
# count; those of its target, and of what the image has pinned for others, do not.
make_environment() {
    unset PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_CONSTRAINT PIP_NO_DEPS PIP_DRY_RUN
    : >"$PREFIX/$MARK"
    clear_prefix
    "$PYTHON" -I -m venv "$PREFIX"
    if [ -n "$VERSION" ]; then
        set -- "ranklaunch$EXTRA==$VERSION"
    else
        set -- "$(place_of "$SOURCE")$EXTRA" # a word without a slash is the name of a package to pip
    fi
    if needs_lie_beside; then
        set -- --no-index --find-links "$BESIDE" "$@"
    fi
    PIP_USER=0 "$PREFIX/bin/python" -I -m pip install --no-cache-dir --disable-pip-version-check --quiet "$@" ||
        stop "pip did not install ${VERSION:+ranklaunch }${VERSION:-$SOURCE}: see above"
}

needs_lie_beside() {
    first_of "$BESIDE"/[Jj]inja2-*.whl >/dev/null && first_of "$BESIDE"/[Mm]arkup[Ss]afe-*.whl >/dev/null || return 1
    [ -z "$EXTRA" ] || first_of "$BESIDE"/[Pp]y[Yy][Aa][Mm][Ll]-*.whl >/dev/null
}

clear_prefix() {
    for each in "$PREFIX"/* "$PREFIX"/.[!.]*; do
        [ "$each" = "$PREFIX/$MARK" ] || rm -rf "$each"
    done
}

# Not the script that pip makes: that one would follow PYTHONPATH and PYTHONHOME, in which a program's packages hide ranklaunch's. The
# variables themselves stay in the environment, for the ranks. The kernel starts Python by this first line: no shell stands between.
write_command() {
    first_line >"$PREFIX/bin/ranklaunch"
    cat >>"$PREFIX/bin/ranklaunch" <<'END'
from ranklaunch.entrypoints.main import script

script()
END
    chmod 755 "$PREFIX/bin/ranklaunch"
}

# The Pythons of ranks import this folder at each start, and cannot write their compiled files into it later.
compile_for_ranks() {
    folder=$("$PREFIX/bin/python" -I -c 'from ranklaunch.files import rankside; print(rankside())')
    for each in python python3; do
        "$each" -I -m compileall -q "$folder" >/dev/null 2>&1 || : # there is none, or it is too old for records
    done
}

try_it() {
    "$PREFIX/bin/python" -I -c 'import jinja2' || stop "Jinja2 does not load in $PREFIX: see above"
    [ -z "$EXTRA" ] || "$PREFIX/bin/python" -I -c 'import yaml' || stop "PyYAML does not load in $PREFIX: see above"
    "$BIN/ranklaunch" --version || stop "$BIN/ranklaunch does not start: see above"
}

main "$@"
