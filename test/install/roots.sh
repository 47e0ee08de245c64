#!/usr/bin/env bash
# Installs the wheel, and lmc-run's package, in fresh roots of Debian 12 and of Ubuntu 24.04, and trains the demo there
# (in-root.sh). debootstrap makes the roots, which needs the user root and the distributions' servers; what runs inside of
# them has no network.
#
#   roots.sh DIST TEXT FOLDER
#
#   DIST     what ./dev package has made
#   TEXT     an English text
#   FOLDER   a scratch folder, which is removed at the end
#
# A distribution whose packages cannot be had is named as not run; if there is none at all, that is an error.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
dist=$(realpath "$1") text=$(realpath "$2") folder=$3

fail() { echo "roots.sh: error: $*" >&2; exit 1; }
[ "$(id -u)" = 0 ] || fail "only the user root can make roots"
command -v debootstrap > /dev/null || fail "debootstrap is missing: apt-get install debootstrap"

mkdir -p "$folder"
folder=$(realpath "$folder")
trap 'rm -rf --one-file-system "$folder"' EXIT

# Debian has no package of Ubuntu's keys; these are Ubuntu's own, known by their checksum.
UBUNTU=http://archive.ubuntu.com/ubuntu
KEYS=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
KEYS_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8
ubuntu_keys() {
  python3 -c 'import sys, urllib.request; urllib.request.urlretrieve(*sys.argv[1:])' "$UBUNTU/$KEYS" "$folder/keys.deb" &&
    echo "$KEYS_SHA256  $folder/keys.deb" | sha256sum --check --quiet && dpkg-deb -x "$folder/keys.deb" "$folder/keys"
}

# make NAME: makes the root FOLDER/NAME.
make() {
  local options=(--variant=minbase --include=python3,python3-venv,python3-pip)
  case $1 in
    debian-12) debootstrap "${options[@]}" bookworm "$folder/$1" http://deb.debian.org/debian ;;
    ubuntu-24.04)
      # All scripts of Ubuntu are links to that of gutsy; debootstrap of Debian 12 has no link named noble.
      ubuntu_keys && debootstrap "${options[@]}" --components=main,universe \
        --keyring="$folder/keys/usr/share/keyrings/ubuntu-archive-keyring.gpg" noble "$folder/$1" "$UBUNTU" \
        /usr/share/debootstrap/scripts/gutsy ;;
  esac
}

ran=0
for name in debian-12 ubuntu-24.04; do
  root=$folder/$name
  if ! make "$name" > "$folder/$name.log" 2>&1; then
    tail -n 3 "$folder/$name.log"
    echo "not run: $name, whose packages cannot be had"
    rm -rf --one-file-system "$root"
    continue
  fi
  mkdir -p "$root/opt/lmc"
  cp "$dist"/* "$here/in-root.sh" "$root/opt/lmc"
  cp "$text" "$root/opt/lmc/text.txt"
  cp "$here/../../models/configs/demo.toml" "$root/opt/lmc"
  unshare --mount --net bash -c "mount -t proc proc '$root/proc' &&
    exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root chroot '$root' /opt/lmc/in-root.sh /opt/lmc"
  rm -rf --one-file-system "$root"
  ran=$((ran + 1))
done
[ "$ran" -gt 0 ] || fail "no root could be made"
