#!/usr/bin/env bash
# Prints the path of a wheel of Horovod for PyTorch, with MPI and Gloo. There is none to download, so it is built, which takes 5 to 15
# minutes, and kept in ~/.cache/ranklaunch for the same Python, PyTorch and Open MPI.
#
#     tools/horovod_wheel.sh .venv/bin/python     # which must have PyTorch
set -euo pipefail

VERSION=0.28.1
# setuptools 81 has no pkg_resources any more, CMake 4 refuses what Horovod's files ask for.
BUILD_TOOLS=('setuptools<81' wheel 'cmake<4' packaging cffi cloudpickle psutil pyyaml)

main() {
    (($# == 1)) || stop "usage: tools/horovod_wheel.sh PYTHON"
    local python=$1 folder
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/ranklaunch/wheels/$(tag "$python")
    mkdir -p "$folder"
    exec 9>"$folder/.lock"
    flock 9  # a second one waits for the first one's wheel
    find_wheel "$folder" || build_wheel "$python" "$folder"
    find_wheel "$folder"
}

# What a wheel fits: cp311-torch2.13.0+cpu-openmpi4.1.4-x86_64
tag() {
    local python_and_torch mpi
    python_and_torch=$("$1" -c 'import sys, torch; print("cp%d%d-torch%s" % (*sys.version_info[:2], torch.__version__))') ||
        stop "$1 has no PyTorch, which Horovod is built for"
    mpi=$(mpicxx --showme:version 2>/dev/null | sed -n 's/.*Open MPI \([0-9.]*[0-9]\).*/\1/p') || true
    [[ -n $mpi ]] || stop "there is no mpicxx of Open MPI; on Debian and Ubuntu: apt-get install libopenmpi-dev"
    printf '%s-openmpi%s-%s\n' "$python_and_torch" "$mpi" "$(uname -m)"
}

find_wheel() {
    local wheels=("$1"/horovod-"$VERSION"-*.whl)
    [[ -f ${wheels[0]} ]] && printf '%s\n' "${wheels[0]}"
}

# All of it happens in a folder of its own. The wheel is moved when it is whole, so a build that is interrupted leaves nothing to be found.
build_wheel() {
    local python=$1 target=$2
    build=$(mktemp -d "$target/build.XXXXXX")
    trap 'rm -rf "$build"' EXIT
    echo "building Horovod $VERSION, which takes 5 to 15 minutes; its log: $build/log" >&2
    if ! (make_tools "$python" && unpack && correct && compile) >"$build/log" 2>&1; then
        tail -n 40 "$build/log" >&2
        stop "Horovod was not built: see above"
    fi
    mv "$build"/made/horovod-"$VERSION"-*.whl "$target/"
}

# An environment of its own, which sees the given one's PyTorch: the given one stays as it is.
make_tools() {
    "$1" -m venv "$build/venv" || return
    local own theirs
    own=$(site_packages "$build/venv/bin/python") && theirs=$(site_packages "$1") || return
    echo "$theirs" >"$own/theirs.pth"
    "$build/venv/bin/python" -m pip install -q "${BUILD_TOOLS[@]}"
}

site_packages() {
    "$1" -c 'import sysconfig; print(sysconfig.get_path("purelib"))'
}

unpack() {
    "$build/venv/bin/python" -m pip download -q --no-deps --no-build-isolation --no-binary horovod -d "$build" "horovod==$VERSION" &&
        tar -xzf "$build/horovod-$VERSION.tar.gz" -C "$build"
}

# Horovod compiles as C++14, PyTorch's headers are C++17.
correct() {
    local file
    for file in CMakeLists.txt horovod/torch/CMakeLists.txt; do
        replace_once "$build/horovod-$VERSION/$file" 'set(CMAKE_CXX_STANDARD 14)' 'set(CMAKE_CXX_STANDARD 17)' || return
    done
}

replace_once() {
    local found
    found=$(grep -cF "$2" "$1") || true
    if [[ $found != 1 ]]; then
        echo "$1 has '$2' $found times, not once: this is not the Horovod that is known here"
        return 1
    fi
    sed -i "s/$2/$3/" "$1"
}

compile() {
    cd "$build/horovod-$VERSION" &&
        env PATH="$build/venv/bin:$PATH" MAKEFLAGS="-j$(nproc)" HOROVOD_WITH_PYTORCH=1 HOROVOD_WITHOUT_TENSORFLOW=1 HOROVOD_WITHOUT_MXNET=1 \
            HOROVOD_WITH_MPI=1 HOROVOD_WITH_GLOO=1 \
            python -m pip wheel -v --no-build-isolation --no-deps -w "$build/made" .
}

stop() {
    echo "horovod_wheel.sh: $1" >&2
    exit 1
}

main "$@"
