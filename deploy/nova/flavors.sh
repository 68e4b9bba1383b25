#!/bin/sh
# Makes flavors that have a part of one GPU each, with the credential that `openstack` finds in its
# environment. A flavor asks for hundredths of a GPU's time and for MiB of its memory. Both must
# be of the same GPU, hence the one group (GPU) that all of them name.
#
#   flavors.sh [SHARES:MIB]...     default: 25:4096 50:8192 100:16384
#
# RAM, VCPUS and DISK are those of the flavors; TRAIT is what the GPU must have beside vgpud,
# such as CUSTOM_VGPUD_SOFTGPU or CUSTOM_VGPUD_NVIDIA.
set -eu
[ $# -gt 0 ] || set -- 25:4096 50:8192 100:16384
for size; do
	case $size in
	*[!0-9:]* | *:*:* | :* | *:) ;;
	*:*) continue ;;
	esac
	echo "flavors.sh: $size: want SHARES:MIB, such as 25:4096" >&2
	exit 2
done
for size; do
	shares=${size%:*} mib=${size#*:}
	openstack flavor create --id "vgpu.$shares" --ram "${RAM:-4096}" --vcpus "${VCPUS:-2}" --disk "${DISK:-20}" \
		--property "resources_GPU:CUSTOM_VGPUD_SHARE=$shares" \
		--property "resources_GPU:CUSTOM_VGPUD_MEMORY_MIB=$mib" \
		--property "trait_GPU:${TRAIT:-CUSTOM_VGPUD}=required" \
		"vgpu.$shares"
done
