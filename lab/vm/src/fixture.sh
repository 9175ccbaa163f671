# Links of the classes first, then the files of the devices that they lead to.
classes="/sys/class/net /sys/bus/thunderbolt/devices /sys/class/infiniband"
emit() {
	for path; do
		if [ -L "$path" ]; then
			printf '%s\t-> %s\n' "${path#/}" "$(readlink "$path")"
		elif [ -f "$path" ] && [ -r "$path" ]; then
			content=$(head -c 2048 "$path" 2>/dev/null | tr -d '\000' | sed ':a;N;$!ba;s/\n/\\n/g') || continue
			printf '%s\t%s\n' "${path#/}" "$content"
		fi
	done
}
list() {
	find "$1" -maxdepth "$2" \( -type f -o -type l \) ! -path '*/power/*' ! -path '*/statistics/*' ! -path '*/queues/*' \
		! -path '*/msi_irqs/*' ! -name uevent ! -name 'resource*' ! -name config ! -name rom ! -name remove ! -name rescan \
		! -name trace 2>/dev/null
}
{
	for class in $classes; do
		for link in "$class"/*; do
			[ -L "$link" ] || continue
			echo "$link"
			list "$(readlink -f "$link")" 1
		done
	done
	for port in /sys/class/infiniband/*/ports/*; do
		real=$(readlink -f "$port")
		list "$real" 1
		for n in 0 1 2 3; do
			echo "$real/gids/$n"
			echo "$real/gid_attrs/types/$n"
			echo "$real/gid_attrs/ndevs/$n"
		done
	done
	for nhi in /sys/bus/pci/drivers/thunderbolt/0*; do
		echo "$nhi"
		list "$(readlink -f "$nhi")" 1
		[ ! -d "$nhi/iommu_group" ] || echo "$(readlink -f "$nhi/iommu_group")/type"
	done
	for pci in /sys/bus/pci/devices/*; do
		real=$(readlink -f "$pci")
		echo "$pci"
		for name in class vendor device numa_node driver; do
			echo "$real/$name"
		done
	done
	list /sys/devices/system/node/node0 1
} | sort -u | while read -r path; do emit "$path"; done
