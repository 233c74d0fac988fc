#!/usr/bin/env bash
# Print the path of a wheel of Horovod for PyTorch, with MPI and Gloo. No such wheel is published, so it is built (5 to 15 minutes) and kept
# in ~/.cache/ranklaunch for the same Python, PyTorch and Open MPI.
#
#     tools/horovod_wheel.sh .venv/bin/python     # a Python with PyTorch
set -euo pipefail

VERSION=0.28.1
# setuptools 81 no longer has pkg_resources; CMake 4 refuses the minimum version in Horovod's CMake files.
BUILD_TOOLS=('setuptools<81' wheel 'cmake<4' packaging cffi cloudpickle psutil pyyaml)

main() {
    (($# == 1)) || stop "usage: tools/horovod_wheel.sh PYTHON"
    local python=$1 folder
    folder=${XDG_CACHE_HOME:-$HOME/.cache}/ranklaunch/wheels/$(tag "$python")
    mkdir -p "$folder"
    exec 9>"$folder/.lock"
    flock 9  # parallel runs: one builds, the others wait
    if [[ -z $(find_wheel "$folder") ]]; then build_wheel "$python" "$folder"; fi
    find_wheel "$folder"
}

# Versions that a wheel was built for: cp311-torch2.13.0+cpu-openmpi4.1.4-x86_64
tag() {
    local python_and_torch mpi
    python_and_torch=$("$1" -c 'import sys, torch; print("cp%d%d-torch%s" % (*sys.version_info[:2], torch.__version__))') ||
        stop "$1 has no PyTorch, which Horovod needs: install it first"
    mpi=$(mpicxx --showme:version 2>/dev/null | sed -n 's/.*Open MPI \([0-9.]*[0-9]\).*/\1/p') || true
    [[ -n $mpi ]] || stop "no mpicxx of Open MPI on PATH; on Debian and Ubuntu: apt-get install libopenmpi-dev"
    printf '%s-openmpi%s-%s\n' "$python_and_torch" "$mpi" "$(uname -m)"
}

find_wheel() {
    find "$1" -name "horovod-$VERSION-*.whl"
}

# The build folder's path has no `+`, because Horovod's CMake files use it as a regular expression. A rename puts the tested wheel in place,
# so that an interrupted build leaves none.
build_wheel() {
    local python=$1 target=$2
    build=$(mktemp -d /tmp/horovod-build.XXXXXX)
    part=$(mktemp "$target/part.XXXXXX")
    trap 'rm -rf "$build" "$part"' EXIT
    echo "building Horovod $VERSION (5 to 15 minutes); log: $build/log" >&2
    if ! (make_tools "$python" && unpack && correct && compile && try_it) >"$build/log" 2>&1; then
        tail -n 40 "$build/log" >&2
        stop "Horovod was not built: see above"
    fi
    cat "$build"/made/*.whl >"$part"
    chmod 644 "$part"
    mv "$part" "$target/$(basename "$build"/made/*.whl)"
}

# Make an environment for the build tools. It sees PyTorch of the given Python's environment, and leaves that environment unchanged.
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

# Horovod is compiled as C++14, but PyTorch's headers need C++17.
correct() {
    local file
    for file in CMakeLists.txt horovod/torch/CMakeLists.txt; do
        replace_once "$build/horovod-$VERSION/$file" 'set(CMAKE_CXX_STANDARD 14)' 'set(CMAKE_CXX_STANDARD 17)' || return
    done
}

replace_once() {
    local count
    count=$(grep -cF "$2" "$1") || true
    if [[ $count != 1 ]]; then
        echo "$1 has '$2' $count times, expected once: another version of Horovod?"
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

# Test the wheel: the build omits parts that did not compile without an error.
try_it() {
    cd "$build" && "$build/venv/bin/python" -m pip install -q --no-deps made/*.whl &&
        "$build/venv/bin/python" -c 'import horovod.torch as hvd; assert hvd.mpi_built() and hvd.gloo_built()'
}

stop() {
    echo "horovod_wheel.sh: $1" >&2
    exit 1
}

main "$@"
