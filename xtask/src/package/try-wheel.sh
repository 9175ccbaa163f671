#!/bin/sh
# Installs a wheel where there is no Rust and has it do its work: try-wheel.sh BIN-OF-TOOLS POLICY WHEELS TRANSFER MACHINE.
set -eu
bin=$1 policy=$2 wheels=$3 transfer=$4 machine=$5
fail() { echo "FAIL $1" >&2; exit 1; }
for wheel in "$wheels"/*.whl; do :; done
case $wheel in *-cp311-abi3-"$policy"_"$machine".whl) ;; *) fail "$wheel is not named for Python 3.11 and later and ${policy}_$machine" ;; esac
"$bin/auditwheel" show "$wheel" >"$wheels/audit" || { cat "$wheels/audit"; fail "auditwheel"; }
tr '\n' ' ' <"$wheels/audit" | grep -q "consistent with the following platform tag: \"$policy" || { cat "$wheels/audit"; fail "auditwheel does not find $policy"; }
ok() { echo "ok   $1"; }
ok "auditwheel: ${policy}_$machine"
size() { ls -l "$wheels" | awk 'NR > 1 { print "     " $NF ": " int($5 / 1024) " KiB" }'; }
[ "$machine" = "$(uname -m)" ] || { rm "$wheels/audit" && size && echo "skipped: the wheel for $machine was not installed: this is another processor" && exit 0; }
venv=$wheels/venv
python3 -m venv "$venv"
began=$(date +%s)
env -i PATH=/nowhere HOME="$wheels" "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$wheel"
took=$(($(date +%s) - began))
[ $took -lt 20 ] || fail "pip install took $took s"
ok "pip install, without Rust: $took s"
env -i HOME="$wheels" "$venv/bin/python" "$transfer"
files=$("$venv/bin/python" -m pip show --files linkspan)
for file in py.typed _linkspan.pyi LICENSE-THIRD-PARTY LICENSE-MIT; do
	printf '%s\n' "$files" | grep -q "$file\$" || fail "no $file in the wheel"
done
"$venv/bin/python" -m pip uninstall --quiet --yes linkspan
(cd "$venv" && find . -path '*linkspan*') | grep . && fail "pip uninstall left that"
rm -rf "$venv" "$wheels/audit"
size
