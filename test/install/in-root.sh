#!/bin/sh
# Runs inside a fresh root, as root's own root, without a network: installs the wheel and trains the demo from a text.
#
#   in-root.sh FOLDER      FOLDER has the wheel, lmc-run's package, text.txt and demo.toml
set -eu
export OMP_WAIT_POLICY=passive
cd "$1"

fail() { echo "in-root.sh: error: $*" >&2; exit 1; }

for program in cc c++ gcc g++ clang ld ld.lld mold as make cmake; do
  ! command -v "$program" > /dev/null || fail "$program is here: this root is to have no compiler"
done
python3 -m venv venv
venv/bin/pip install --quiet --no-index ./lmc-*.whl
for program in lmc lmc-data lmc-opt lmc-run lmc-translate lmc-wandb; do
  venv/bin/$program --version | grep -E "^$program [0-9.]+ \(commit [0-9a-f]{12}, [0-9]{4}-[0-9]{2}-[0-9]{2}\)$" ||
    fail "$program --version does not say commit and date"
done
venv/bin/lmc-data pack text.txt -o train.bin --validation=validation.bin
venv/bin/lmc compile demo.toml -o demo.plan --set 'data.train=["train.bin"]' --set 'data.validation=["validation.bin"]' \
  --set training.train_iters=20 --set lr_schedule.warmup_iters=4 --set monitoring.validation_interval=10
venv/bin/lmc-run demo.plan --out=run
# The loss of a byte-level model that knows nothing is ln 256 = 5.55.
tail -n 1 run/metrics.jsonl | python3 -c '
import json, sys
loss = json.loads(sys.stdin.read())["loss"]
sys.exit(f"in-root.sh: error: the loss is {loss} after 20 steps" if not loss < 4 else 0)'

# lmc-run alone, as it lies on the nodes of a cluster: it goes on with the same plan.
tar -xf lmc-run-*.tar.gz
lmc-run-*/bin/lmc-run demo.plan --out=run --eval
echo "in-root.sh: the wheel and lmc-run alone work in $(. /etc/os-release && echo "$PRETTY_NAME"), glibc $(ldd --version | head -n 1 | awk '{ print $NF }')"
