# The initramfs has what this machine's disk needs, not what every machine's may: it is unpacked by an emulated processor.
printf 'MODULES=list\nFSTYPE=ext4\n' >/etc/initramfs-tools/conf.d/lab
printf 'virtio_pci\nvirtio_blk\next4\n' >/etc/initramfs-tools/modules
update-initramfs -u -k all
mkdir -p /boot/lab
release=$(ls /lib/modules)
mv /boot/vmlinuz-* /boot/lab/vmlinuz
mv /boot/initrd.img-* /boot/lab/initrd
echo "$release" >/boot/lab/release
echo '/dev/vda / ext4 defaults,noatime 0 1' >/etc/fstab
echo '127.0.0.1 localhost' >/etc/hosts
# Programs of the runner and of ours come on a second disk at each boot.
cat >/etc/systemd/system/lab-agent.service <<'END'
[Unit]
Description=Agent of the lab
After=basic.target
[Service]
ExecStartPre=/bin/sh -c 'cd / && cpio -idu --quiet --no-absolute-filenames </dev/vdb && ldconfig'
ExecStart=/usr/bin/agent agent
Environment=HOME=%h
[Install]
WantedBy=multi-user.target
END
systemctl enable lab-agent.service
# No terminal is there; nothing is to be fetched, and nothing to be cleared away while a test runs.
systemctl mask getty@tty1.service serial-getty@ttyS0.service apt-daily.timer apt-daily-upgrade.timer \
	dpkg-db-backup.timer fstrim.timer e2scrub_all.timer e2scrub_reap.service man-db.timer logrotate.timer
# A system has them or not; tests that are about them start them.
systemctl disable firewalld.service munge.service slurmctld.service slurmd.service
# One of the group of devices, and one who is not.
groupadd --system --force linkspan
useradd --create-home --shell /bin/sh --groups linkspan friend
useradd --create-home --shell /bin/sh stranger
# Services of packages that are installed later are started, as anywhere.
rm -f /usr/sbin/policy-rc.d /etc/apt/sources.list /etc/apt/apt.conf.d/90lab /etc/resolv.conf
rm -rf /var/lib/apt/lists/* /var/cache/apt/*.bin /var/cache/apt/archives/*.deb /usr/share/doc/* /usr/share/man/*
rm -f /etc/hostname
: >/etc/machine-id
