#!/bin/bash
# What somebody new does, in a system without a compiler or a network: tools/new_user.sh [WHEELS]
# Debian's Python alone in a folder, a folder of wheels (by default those of `make release`, and what they require); then
# install, devices, train, save, serve, ask by curl, JSON, binary and gRPC. Needs root and Debian's mmdebstrap.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/new-user release=${1:-build/release/dist} python=${PYTHON:-.venv/bin/python}
unset LD_LIBRARY_PATH PYTHONPATH
if [ -z "${INSIDE:-}" ]; then
  mkdir -p "$out"
  version=$(apt-cache depends python3 | sed -n 's/.*Depends: python\(3\.[0-9]*\)$/\1/p' | head -n 1)
  if [ ! -e "$out/root" ]; then
    sources=/etc/apt/sources.list
    [ -s "$sources" ] || sources=$(ls /etc/apt/sources.list.d/*.sources | head -n 1)
    mmdebstrap --quiet --variant=extract --include=base-files,python3,python3-distutils,base-passwd,libc-bin,libstdc++6,coreutils,dash \
      "$(. /etc/os-release && echo "$VERSION_CODENAME")" "$out/root" "$sources"
  fi
  rm -rf "$out/root/wheels"
  "$python" -m pip download -q --find-links "$release" --only-binary=:all: --python-version "$version" \
    --platform manylinux_2_28_x86_64 --platform manylinux2014_x86_64 --platform manylinux_2_17_x86_64 --platform any \
    -d "$out/root/wheels" "tesserack[cpu,serving]" numpy pip scikit-learn "tritonclient[http,grpc]"
  INSIDE=1 exec unshare -m -n "$0" "$@"
fi

# In a network of its own, where there is nobody else.
ip link set lo up
root=$out/root
mount -t proc proc "$root/proc"
mount --rbind /dev "$root/dev"
rm -rf "$root/env" "$root/home/new"
mkdir -p "$root/home/new" "$root/tmp"
cp examples/digits.py "$root/home/new"
there() { chroot "$root" /usr/bin/env -i HOME=/home/new PATH=/env/bin:/usr/bin:/bin sh -c "cd /home/new && $1"; }

echo "== no compiler"
there 'for name in c++ g++ gcc cc clang make cmake; do ! command -v $name || exit 1; done'
echo "== install"
there 'python3 -m venv --without-pip /env'
pip="python3 $(cd "$root/wheels" && ls | sed -n 's,^pip-,/wheels/pip-,p')/pip --python /env/bin/python install -q --no-index --find-links /wheels"
TIMEFORMAT="tesserack[cpu]: installed in %R s, %U s and %S s on the processor"
time there "$pip 'tesserack[cpu]'"
there "tesserack devices"
echo "== train and save"
there "$pip scikit-learn && python digits.py --epochs 5 --save digits.safetensors"
echo "== serve"
there "$pip 'tesserack[serving]' 'tritonclient[http,grpc]'"
there "exec tesserack serve digits.py:make_model --weights digits.safetensors --input 'x=float32[batch 1 8 8]'" &
server=$!
trap 'kill $server 2>/dev/null || true' EXIT
for _ in $(seq 300); do
  curl -sf http://127.0.0.1:8000/v2/health/ready >/dev/null && break
  sleep 0.2
done
echo "== ask"
numbers=$(seq -s, 64)
curl -sf -d "{\"inputs\": [{\"name\": \"x\", \"datatype\": \"FP32\", \"shape\": [1, 1, 8, 8], \"data\": [$numbers]}]}" \
  http://127.0.0.1:8000/v2/models/digits/infer
echo
cat >"$root/home/new/ask.py" <<'PROGRAM'
import numpy as np
import tesserack as ts
from digits import make_model
from tritonclient import grpc, http

x = np.random.default_rng(0).uniform(0, 1, (3, 1, 8, 8)).astype(np.float32)
model = make_model().eval()
model.load_state_dict(ts.load("digits.safetensors"))
want = model(ts.tensor(x)).detach().numpy()
for name, module, port, words in (
    ("JSON", http, 8000, {"binary_data": False}), ("binary", http, 8000, {"binary_data": True}), ("gRPC", grpc, 8001, {}),
):  # fmt: skip
    given = module.InferInput("x", x.shape, "FP32")
    given.set_data_from_numpy(x, **words)
    wanted = module.InferRequestedOutput("output0", **words)
    answer = module.InferenceServerClient(f"127.0.0.1:{port}").infer("digits", [given], outputs=[wanted])
    np.testing.assert_allclose(answer.as_numpy("output0"), want, rtol=1e-5, atol=1e-5)
    print(name, "gives what the model gives")
PROGRAM
there "python ask.py"
echo "== stop"
kill -TERM "$(pgrep -P "$server" || echo "$server")" # the shell between is not told
wait "$server"
trap - EXIT
echo "new user: done"
