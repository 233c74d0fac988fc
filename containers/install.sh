#!/bin/sh
# Install ranklaunch into its own environment, and put its command on PATH. Every Dockerfile here runs this script, and others may.
#
#     sh install.sh [--python PYTHON] [--prefix FOLDER] [--bin FOLDER] [--yaml] SOURCE
#
# SOURCE is one of
#   - ranklaunch's wheel, a folder with it, or a checkout;
#   - a version, such as 0.2.0, which pip gets from its index.
# --yaml installs PyYAML too, for `ranklaunch spec --values FILE.yaml`. With wheels of Jinja2 and MarkupSafe (and, with --yaml, of PyYAML)
# beside ranklaunch's wheel, no network is needed; else pip gets these packages from its index.
#
# PYTHON (python3) is 3.9 or newer and can make virtual environments. Without root rights, give folders that you can write. The prefix
# (/opt/ranklaunch) is a folder for ranklaunch alone: new, empty, or with an earlier ranklaunch, which is replaced.
set -eu

PYTHON=python3
PREFIX=/opt/ranklaunch
BIN=/usr/local/bin
EXTRA=
MARK=.of-ranklaunch  # first file in the prefix: marks it as ranklaunch's

# umask 022: everyone can read the files, since the container's user is rarely the user that installs.
main() {
    umask 022
    unset CDPATH # with it, cd may print a path, or change to another folder
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
    [ $# -gt 0 ] || stop "expected a wheel of ranklaunch, a folder with one, a checkout, or a version such as 0.2.0"
    [ $# -eq 1 ] || stop "$2: expected nothing after $1; put options before it"
    find_source "$1"
}

set_option() {
    case $1 in
    --python) PYTHON=$2 ;;
    --prefix) PREFIX=$2 ;;
    --bin) BIN=$2 ;;
    esac
}

# A file or folder goes before a version of the same name. SOURCE is empty for a version.
find_source() {
    SOURCE='' VERSION='' BESIDE=/nowhere
    if [ ! -e "$1" ] && is_version "$1"; then
        VERSION=$1
        return
    fi
    [ -e "$1" ] || stop "$1: no such file or folder; a version has the form 0.2.0"
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

# Set SOURCE to the wheel in a folder, else to the folder itself, which may be a checkout. Several wheels are refused: the first may be the
# oldest.
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
    command -v "$PYTHON" >/dev/null || stop "$PYTHON: not found; name a Python by --python"
    [ "$("$PYTHON" -I -c 'import sys; print(sys.version_info >= (3, 9))')" = True ] ||
        stop "$PYTHON: too old, or broken; ranklaunch needs Python 3.9 or newer"
    "$PYTHON" -I -c 'import ensurepip, venv' 2>/dev/null ||
        stop "$PYTHON cannot make virtual environments; on Debian and Ubuntu: apt-get install python3-venv"
}

check_folders() {
    case $PREFIX in /*) ;; *) stop "--prefix $PREFIX: expected an absolute path" ;; esac
    case $PREFIX in *[!A-Za-z0-9/._+-]*) stop "--prefix $PREFIX: expected letters, digits and /._+-, for a script's first line" ;; esac
    case $PREFIX/ in */./* | */../*) stop "--prefix $PREFIX: expected a path without . and .." ;; esac
    PREFIX=$(plain "$PREFIX") BIN=$(plain "$BIN")
    [ -n "$PREFIX" ] || stop "--prefix /: expected a folder of its own"
    [ ! -L "$PREFIX" ] || stop "--prefix $PREFIX: a link, where no environment can be made; name the folder itself"
    [ "$BIN" != "$PREFIX/bin" ] || stop "--bin $BIN: a folder of the environment itself; name a folder on PATH"
    [ ! -d "$BIN/ranklaunch" ] || stop "--bin $BIN: $BIN/ranklaunch is a folder; name another folder on PATH"
    [ ! -e "$PREFIX/" ] || check_prefix
    { mkdir -p "$PREFIX" "$BIN/" && [ -w "$PREFIX" ] && [ -w "$BIN/" ]; } || stop "no write access; choose other folders by --prefix and --bin"
}

# Print a path without double slashes and without a slash at its end.
plain() {
    echo "$1" | sed 's#//*#/#g; s#/$##'
}

# Refuse a prefix with other files: its content will be removed.
check_prefix() {
    if [ -n "$SOURCE" ]; then
        case $(place_of "$SOURCE")/ in "$(place_of "$PREFIX/")"/*) stop "--prefix $PREFIX: $SOURCE is in it, and would be removed" ;; esac
    fi
    [ -z "$(ls -A "$PREFIX/")" ] || is_earlier || stop "--prefix $PREFIX: it has other files, which would be removed; name a new folder"
}

# Succeed if the prefix has an earlier installation, even one that failed or was interrupted at any point.
is_earlier() {
    { [ -f "$PREFIX/$MARK" ] && [ ! -L "$PREFIX/$MARK" ]; } || is_environment
}

is_environment() {
    [ -f "$PREFIX/pyvenv.cfg" ] && [ -f "$PREFIX/bin/ranklaunch" ] && [ "$(head -n 1 "$PREFIX/bin/ranklaunch")" = "$(first_line)" ]
}

first_line() {
    printf '#!%s/bin/python -I\n' "$PREFIX"
}

# Print the absolute path of a file or folder, without links.
place_of() {
    if [ -d "$1" ]; then (cd "$1" && pwd -P); else echo "$(cd "$(dirname "$1")" && pwd -P)/$(basename "$1")"; fi
}

# -I ignores variables and folders that are meant for the training program's Python. Settings of pip's index and proxies are kept. Settings
# of its target, and the image's constraints for other packages, are dropped.
make_environment() {
    unset PIP_TARGET PIP_PREFIX PIP_ROOT PIP_PYTHON PIP_CONSTRAINT PIP_NO_DEPS PIP_DRY_RUN
    : >"$PREFIX/$MARK"
    clear_prefix
    "$PYTHON" -I -m venv "$PREFIX"
    if [ -n "$VERSION" ]; then
        set -- "ranklaunch$EXTRA==$VERSION"
    else
        set -- "$(place_of "$SOURCE")$EXTRA" # absolute: pip takes a word without a slash for a package's name
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

# Replace the script that pip makes: it would follow PYTHONPATH and PYTHONHOME, so a program's packages could hide ranklaunch's. The
# variables stay in the environment, for the ranks. The kernel starts Python by the first line, without a shell.
write_command() {
    first_line >"$PREFIX/bin/ranklaunch"
    cat >>"$PREFIX/bin/ranklaunch" <<'END'
from ranklaunch.entrypoints.main import script

script()
END
    chmod 755 "$PREFIX/bin/ranklaunch"
}

# Compile the folder that Pythons of ranks import at each start: later they cannot write compiled files into it.
compile_for_ranks() {
    folder=$("$PREFIX/bin/python" -I -c 'from ranklaunch.files import rankside; print(rankside())')
    for each in python python3; do
        "$each" -I -m compileall -q "$folder" >/dev/null 2>&1 || : # no such Python, or one too old for records
    done
}

try_it() {
    "$PREFIX/bin/python" -I -c 'import jinja2' || stop "Jinja2 does not load in $PREFIX: see above"
    [ -z "$EXTRA" ] || "$PREFIX/bin/python" -I -c 'import yaml' || stop "PyYAML does not load in $PREFIX: see above"
    "$BIN/ranklaunch" --version || stop "$BIN/ranklaunch does not start: see above"
}

main "$@"
