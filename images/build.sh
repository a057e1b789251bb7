#!/bin/bash
# Builds the images, without a network once their parts are there: images/build.sh [training serving]
# Needs root, Debian's buildah and mmdebstrap, and the wheels of `make release`; leaves an archive of each in build/images.
set -euo pipefail
cd "$(dirname "$0")/.."
out=build/images python=${PYTHON:-.venv/bin/python} release=${RELEASE:-build/release/dist}
mkdir -p "$out"
build=(unshare -n buildah --storage-driver vfs --root "$PWD/$out/storage" --runroot "$PWD/$out/run")

# What pip would fetch, for the Python of the base.
version=$(apt-cache depends python3 | sed -n 's/.*Depends: python\(3\.[0-9]*\)$/\1/p' | head -n 1)
if [ ! -e "$out/wheels/pip.whl" ] || [ -n "$(find "$release" -name "*.whl" -newer "$out/wheels/pip.whl")" ]; then
  rm -rf "$out/wheels"
  "$python" -m pip download -q --find-links "$release" --only-binary=:all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform any \
    -d "$out/wheels" "tesserack[cpu,opencl,serving]" numpy pip
  "$python" images/strip_wheels.py "$out"/wheels/*.whl
  mv "$out"/wheels/pip-*.whl "$out/wheels/pip.whl" # last: it says that the others are there
  touch "$out/wheels/pip.whl"
fi

# Debian's smallest system with Python: no package manager's lists, documents or compilers.
if [ ! -e "$out/base.tar" ]; then
  sources=/etc/apt/sources.list
  [ -s "$sources" ] || sources=$(ls /etc/apt/sources.list.d/*.sources | head -n 1)
  mmdebstrap --variant=extract --include=base-files,python3,base-passwd,libc-bin,libstdc++6,ocl-icd-libopencl1 \
    --dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-exclude=/usr/share/man/*' \
    --dpkgopt='path-exclude=/usr/share/locale/*' --dpkgopt='path-exclude=/usr/lib/*/gconv/*' \
    --dpkgopt='path-exclude=/usr/lib/python3*/lib2to3/*' --dpkgopt='path-exclude=/usr/lib/python3*/pydoc_data/*' \
    "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$out/base.tar" "$sources"
fi

"${build[@]}" bud --isolation chroot -q -t localhost/tesserack-base -f images/base.Containerfile "$out"
for name in "${@:-training serving}"; do
  for image in $name; do
    "${build[@]}" bud --isolation chroot -q -t "localhost/tesserack-$image" -f "images/$image.Containerfile" "$out"
    rm -f "$out/$image.tar"
    "${build[@]}" push -q "localhost/tesserack-$image" "oci-archive:$out/$image.tar"
    echo "$image: $(du -m "$out/$image.tar" | cut -f 1) MB packed"
  done
done
