#!/bin/bash
# Runs the images that build.sh has left: trains in one, serves in the other what came of it, and asks. Needs root.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/images port=${PORT:-18260}
there=(buildah --storage-driver vfs --root "$out/storage" --runroot "$out/run")
folder=$(mktemp -d)
training=$("${there[@]}" from localhost/tesserack-training)
serving=$("${there[@]}" from localhost/tesserack-serving)
server=
finish() {
  # The server itself: buildah hands no signal on.
  [ -z "$server" ] || pkill -o -f "^/opt/tesserack/bin/python3 -m tesserack serve model.py:build .*--port $port" || true
  [ -z "$server" ] || wait "$server" || grep -q "0 requests to answer" "$folder/log" || cat "$folder/log"
  "${there[@]}" rm "$training" "$serving" >/dev/null
  rm -rf "$folder"
}
trap finish EXIT

cat >"$folder/model.py" <<'PROGRAM'
import os
import shutil

import tesserack as ts


def build():
    return ts.nn.Linear(2, 1)


if __name__ == "__main__":
    assert os.getuid() and not any(map(shutil.which, ("gcc", "g++", "cc", "make", "apt", "sh"))), "more than is needed"
    model, x = build(), ts.randn(64, 2)
    optimizer = ts.optim.SGD(model.parameters(), lr=0.3)
    for _ in range(200):
        optimizer.zero_grad()
        (model(x) - x @ ts.tensor([[3.0], [-2.0]])).square().mean().backward()
        optimizer.step()
    ts.save(model.state_dict(), "weights.safetensors")
PROGRAM
chmod -R a+rwX "$folder"

inside() { "${there[@]}" run --isolation chroot --user 1000:1000 --workingdir /files -v "$folder:/files" "$@"; }
inside "$training" -- python3 model.py
inside "$serving" -- python3 -m tesserack serve model.py:build --weights weights.safetensors \
  --input "x=float32[batch 2]" --name line --port "$port" --grpc-port 0 2>"$folder/log" &
server=$!
for _ in $(seq 150); do
  curl -sf "http://127.0.0.1:$port/v2/health/ready" >/dev/null && break
  sleep 0.2
done
answer=$(curl -sf -d '{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 1]}]}' \
  "http://127.0.0.1:$port/v2/models/line/infer")
echo "$answer"
case $answer in *'"data":[1.0'* | *'"data":[0.99'*) ;; *) exit 1 ;; esac
for image in "$training" "$serving"; do
  size=$(du -sm "$("${there[@]}" mount "$image")" | cut -f 1)
  limit=350
  [ "$image" = "$training" ] || limit=200
  echo "$image: $size MB unpacked, $limit at most"
  [ "$size" -le "$limit" ]
done
