#!/bin/bash
# Has podman load the image and run it with the words that `lspan env --nccl --for podman` prints: try-image.sh IMAGE NAME, in namespaces of
# its own for network and mounts. STAGE is what `package tar` has made, PLUGIN_HOST plays NCCL's part, KUBERNETES has the examples.
set -eu
image=$1 name=$2
dir=$(mktemp -d /tmp/linkspan-image-XXXXXX)
stage=$(echo "$STAGE"/linkspan-*-"$(uname -m)"-linux-gnu)
fail() { echo "FAIL $1" >&2; for file in "$dir"/said*; do [ ! -s "$file" ] || { echo "-- ${file##*/}"; tail -n 20 "$file"; } >&2; done; exit 1; }
ok() { echo "ok   $1"; }
running=''
# shellcheck disable=SC2329
finish() {
	for pid in $running; do kill "$pid" 2>/dev/null || :; done
	podman rm --all --force --time 1 >/dev/null 2>&1 || :
	# The mounts go with the namespace.
	umount -l /etc "$dir"
	rmdir "$dir"
}
trap finish EXIT

# An /etc, a store and a network of its own, so that nothing of this machine's podman is touched. A tmpfs for what overlays write to.
ip link set lo up
mount -t tmpfs none "$dir"
mkdir -p "$dir"/{etc/upper,etc/work,store,run}
mount -t overlay -o "lowerdir=/etc,upperdir=$dir/etc/upper,workdir=$dir/etc/work" none /etc
mkdir -p /etc/containers /etc/cdi
printf '[storage]\ndriver = "overlay"\ngraphroot = "%s/store"\nrunroot = "%s/run"\n' "$dir" "$dir" >/etc/containers/storage.conf
# A root without CAP_SYS_RESOURCE may set these limits, and no program for devices in a cgroup; a mixture of both versions of cgroups is refused.
cat >/etc/containers/containers.conf <<'EOF'
[engine]
cgroup_manager = "cgroupfs"
events_logger = "none"
[containers]
log_driver = "none"
cgroups = "disabled"
default_ulimits = ["nofile=1024:1024", "nproc=1024:1024"]
[network]
network_backend = "netavark"
EOF
if [ -d /sys/fs/cgroup/unified ]; then umount -R /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup; fi
echo '{ "default": [ { "type": "insecureAcceptAnything" } ] }' >/etc/containers/policy.json

podman --version
podman load --quiet -i "$image" >"$dir/said" 2>&1 || fail "podman load"
podman run --rm "$name" lspan selftest >"$dir/said" 2>&1 || fail "lspan selftest in the image"
for part in 'NCCL plugin' 'RCCL plugin' 'path tcp' 'path shm'; do grep -q "^pass  $part" "$dir/said" || fail "$part"; done
ok "podman load; in the image the plugin loads under both names, data moves over TCP and shared memory"

# As printed, with IMAGE and CMD filled in; -it wants a terminal, which script(1) gives.
LD_LIBRARY_PATH=$stage/lib "$stage/bin/lspan" env --nccl --for podman >"$dir/printed" 2>"$dir/said" || fail "lspan env"
as_printed() { sed -n '/^podman run/,/IMAGE CMD/p' "$dir/printed" | sed "s|IMAGE CMD|$name $1|"; }
typed() { script -qec "$1" /dev/null </dev/null; }
waits() { timeout 60 tail -n +1 -F --pid="$2" "$1" 2>/dev/null | grep -q -m 1 'waiting on' || fail "lspan perf serve in a container"; }
typed "$(as_printed 'lspan perf serve --open')" >"$dir/said-serve" 2>&1 &
running=$!
waits "$dir/said-serve" $running
code=0
typed "$(as_printed 'lspan perf bw 127.0.0.1 -s 1M')" >"$dir/said" 2>&1 || code=$?
# 3: each byte is copied twice, for they have pid namespaces of their own, and that is said.
[ $code = 3 ] && grep -q '# shm .*different pid namespaces' "$dir/said" || fail "two containers as printed do not share memory: exit code $code"
ok "two containers with the words that lspan env prints: over shared memory, by two copies"
typed "$(as_printed "sh -c 'lspan run -- env; ls /opt/linkspan'")" >"$dir/said" 2>&1 || fail "a job as printed"
for text in NCCL_NET=linkspan NCCL_NET_PLUGIN=linkspan LD_LIBRARY_PATH=/opt/linkspan libnccl-net-linkspan.so librccl-net-linkspan.so; do
	grep -q "$text" "$dir/said" || fail "a job as printed has no $text"
done
kill "$running" && wait "$running" 2>/dev/null || :
podman rm --all --force --time 1 >/dev/null 2>&1
ok "the host's plugin by both names, and the settings, as printed"

# The specification as printed, without sudo, and the line above it.
sed -n '/^sudo mkdir/,/^EOF/p' "$dir/printed" | sed 's/sudo //g' | bash
line=$(sed -n "s/.*and then: \(podman run .*\) IMAGE CMD/\1/p" "$dir/printed")
$line "$name" sh -c 'lspan run -- env && ls /opt/linkspan' >"$dir/said" 2>&1 || fail "with the CDI specification: $line"
for text in NCCL_NET=linkspan LD_LIBRARY_PATH=/opt/linkspan librccl-net-linkspan.so; do grep -q "$text" "$dir/said" || fail "CDI: no $text"; done
ok "the same by the specification for the Container Device Interface"

podman network create linkspan-try >"$dir/said" 2>&1 || fail "podman network create"
podman run --rm --name serve --network linkspan-try "$name" lspan perf serve --open >"$dir/said-serve" 2>&1 &
running=$!
waits "$dir/said-serve" $running
address=$(podman inspect --format '{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}' serve)
code=0
podman run --rm --network linkspan-try "$name" lspan perf bw "$address" -s 1M >"$dir/said" 2>&1 || code=$?
# 3: a virtual cable is a downgrade, and said to be one.
[ $code = 3 ] || fail "over podman's network: exit code $code"
grep -m 1 '^path' "$dir/said" | sed 's/^/     /'
podman rm --force --time 1 serve >/dev/null 2>&1
wait "$running" 2>/dev/null || :
ok "two containers over podman's own network: TCP, which is called a downgrade"

# What the init containers of the Kubernetes examples do, and a job, in an image that has nothing of linkspan.
args=$(sed -n '/args:/,/volumeMounts/p' "$KUBERNETES/base/job.yaml" | sed -n '/- |/,/volumeMounts/p' | sed '1d;$d')
mkdir "$dir/opt"
podman run --rm -v "$dir/opt:/opt/linkspan" "$name" sh -ec "$args" >"$dir/said" 2>&1 || fail "the init container"
job="/opt/linkspan/lspan run --strict -- /plugin-host --plugin /opt/linkspan/librccl-net-linkspan.so --version 12 --test allreduce --ranks 2 --quick"
pod() {
	podman run --rm --mount type=tmpfs,destination=/usr/local,notmpcopyup -v "$PLUGIN_HOST:/plugin-host:ro" -v "$dir/opt:/opt/linkspan" \
		-e LINKSPAN_STATS_DIR=/opt/linkspan/stats -e LINKSPAN_IFNAME==eth0 "$name" "$@" >"$dir/said" 2>&1
}
pod sh -c "$(sed -n 's/^ *args: \["\(.*doctor.*\)"\]$/\1/p' "$KUBERNETES/base/job.yaml")" || fail "the init container doctor"
# shellcheck disable=SC2086
pod $job || fail "a job beside the files of the init container"
grep -q '^lspan: shm ' "$dir/said" || fail "the job does not say that it used shared memory"
rm "$dir"/opt/lib*
! pod sh -c "$(sed -n 's/^ *args: \["\(.*doctor.*\)"\]$/\1/p' "$KUBERNETES/base/job.yaml")" || fail "the init container doctor finds a plugin that is gone"
grep -q LS2802 "$dir/said" || fail "doctor does not say what is missing"
ok "the init containers of the Kubernetes examples; lspan run and the plugin in an image without linkspan; without the plugin the pod ends"
