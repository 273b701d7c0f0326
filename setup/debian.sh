#!/bin/sh
# Install what tests need beside Python, where there is none: "postgresql", a server of which the tests start and stop
# their own (the system's default one is not made), or "chromium", a browser without a screen, with one family of fonts.
set -eu
what="${1:-postgresql}"

there() {
    if [ "$what" = chromium ]; then
        command -v chromium >/dev/null && [ -d /usr/share/fonts/truetype/dejavu ]
        return
    fi
    for programs in /usr/lib/postgresql/*/bin; do
        [ -x "$programs/initdb" ] && return
    done
    command -v initdb >/dev/null
}

if there; then
    exit 0
elif ! command -v apt-get >/dev/null; then
    echo "setup: this system has no apt-get; install $what with its own package manager." >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null; then
    as_root="sudo env"
else
    echo "setup: the tests need $what; ask an administrator for: apt-get install $what" >&2
    exit 1
fi

install="$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
$as_root apt-get update -qq
if [ "$what" = chromium ]; then
    $install chromium fonts-dejavu-core
    exit
fi
$install postgresql-common
$as_root sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
$install postgresql
