#!/usr/bin/env bash
# Puts Debian's Python and the LiteRT runtime, both for aarch64, into a folder,
# for qemu-aarch64-static to run. Needs a network; installs nothing, save qemu
# itself where it is missing and root runs this. Says why where it cannot.
#
# make_root.sh FOLDER PYTHON, where the Python says which LiteRT version.
set -euo pipefail

folder=$1
python=$2
release=bookworm
mirror=http://deb.debian.org/debian
keys=/usr/share/keyrings/debian-archive-keyring.gpg

rm -rf "$folder"
mkdir -p "$folder"/{state/lists/partial,cache/archives/partial,root,site}
cannot() {
	echo "$1" >&2
	exit 1
}

if ! command -v qemu-aarch64-static >/dev/null; then
	{ [ "$(id -u)" = 0 ] && apt-get install -y -q qemu-user-static; } ||
		cannot 'qemu-aarch64-static is missing: apt-get install qemu-user-static'
fi
command -v dpkg-deb >/dev/null || cannot 'dpkg-deb is missing'
[ -e "$keys" ] || cannot "$keys is missing: apt-get install debian-archive-keyring"

# An apt of its own, which knows arm64 and believes that nothing is installed.
echo "deb [signed-by=$keys] $mirror $release main" >"$folder/sources.list"
touch "$folder/status"
cat >"$folder/apt.conf" <<EOF
APT::Architecture "arm64";
APT::Architectures { "arm64"; };
APT::Install-Recommends "false";
APT::Sandbox::User "";
Dir::Etc::SourceList "$folder/sources.list";
Dir::Etc::SourceParts "/dev/null";
Dir::State "$folder/state";
Dir::State::Status "$folder/status";
Dir::Cache "$folder/cache";
EOF
export APT_CONFIG="$folder/apt.conf"
{ apt-get -q update && apt-get -q -y --download-only install \
	python3-minimal libpython3-stdlib libstdc++6; } >"$folder/apt.log" ||
	cannot "$mirror cannot be read: see $folder/apt.log"
for package in "$folder"/cache/archives/*.deb; do
	dpkg-deb -x "$package" "$folder/root"
done
rm -rf "$folder/cache" "$folder/state"

# The same version of the runtime as the one that exports are verified in.
mapfile -t same < <("$python" -m pip freeze |
	grep -iE '^(ai-edge-litert|numpy)==')
"$python" -m pip install --disable-pip-version-check --quiet \
	--target "$folder/site" --python-version 3.11 --implementation cp \
	--platform manylinux_2_27_aarch64 --only-binary :all: "${same[@]}" ||
	cannot 'pip has no LiteRT for aarch64'

# A system for each core: the runtime looks its kind up in /proc/cpuinfo.
for core in cortex-a53:0xd03 cortex-a76:0xd0b; do
	system=$folder/${core%:*}
	mkdir -p "$system/proc"
	for entry in "$folder"/root/*; do
		ln -sfn "../root/${entry##*/}" "$system/${entry##*/}"
	done
	for processor in 0 1; do
		printf '%s\t: %s\n' processor $processor \
			Features 'fp asimd evtstrm aes pmull sha1 sha2 crc32 cpuid' \
			'CPU implementer' 0x41 'CPU architecture' 8 \
			'CPU variant' 0x0 'CPU part' "${core#*:}" 'CPU revision' 4
		echo
	done >"$system/proc/cpuinfo"
done
touch "$folder/.installed"
