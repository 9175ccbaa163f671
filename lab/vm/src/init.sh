#!/bin/busybox sh
/bin/busybox --install -s /bin
export PATH=/usr/bin:/bin HOME=/ LD_LIBRARY_PATH=/usr/lib/x86_64-linux-gnu
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/shm /dev/pts
mount -t tmpfs shm /dev/shm
mount -t devpts pts /dev/pts
mount -t debugfs debug /sys/kernel/debug
mount -t tmpfs tmp /tmp
mount -t tmpfs run /run
mkdir -p /run/netns
for word in $(cat /proc/cmdline); do
	case $word in
	lab.name=*) hostname "${word#lab.name=}" ;;
	lab.mode=*) mode=${word#lab.mode=} ;;
	esac
done
# A task that hangs is told before the test's own deadline; a machine under load is not one that hangs.
echo 25 >/proc/sys/kernel/hung_task_timeout_secs 2>/dev/null
# The debug kernel: every complaint about a mapping, where by itself it tells the first one only.
[ ! -e /sys/kernel/debug/dma-api/all_errors ] || echo 1 >/sys/kernel/debug/dma-api/all_errors
ulimit -l unlimited
for module in virtio_pci virtio_console virtio_net; do
	modprobe $module 2>/dev/null
done
ip link set lo up
# Interfaces by the last byte of the address that the runner gave them: lan0, lan1, ...
for dir in /sys/class/net/*; do
	address=$(cat "$dir/address")
	case $address in
	52:54:00:4c:*) ip link set "${dir##*/}" name "lan$((0x${address##*:}))" ;;
	esac
done
/usr/bin/agent agent
echo "the agent ended"
poweroff -f
