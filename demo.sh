#!/usr/bin/env bash
# From nothing to decisions: installs what is missing (Debian 12 or newer; as root or through sudo), builds the program, and answers the
# requests of examples/ with the shipped model on WebGPU. Says which adapter answered and how long it took.
#   CHORUS_NO_INSTALL=1 ./demo.sh     installs nothing; fails later if something is missing
set -euo pipefail
cd "$(dirname "$0")"

if [ -z "${CHORUS_NO_INSTALL:-}" ]; then
  echo "Installing what is missing (a few minutes on a bare machine) ..."
  tools/install_prerequisites build run
fi
tools/fetch_dawn
log=build/release.log
mkdir -p build
echo "Building (some minutes; follow $log) ..."
if ! { cmake --preset release && cmake --build --preset release --target chorus; } >"$log" 2>&1; then
  tail -n 40 "$log"
  echo "demo: the build failed; its whole output is in $log" >&2
  exit 1
fi

program=build/release/chorus
echo
echo "The time of a request is that of its work on the device. The first one also waits for the device's programs to be compiled."
for request in examples/*.json; do
  echo
  echo "== $request"
  "$program" decide --model models/kev-mini --base models/kev-mini-base --request "$request" --device webgpu --explain
done
