#!/bin/sh
# Install a PostgreSQL server for the tests, where there is none. The tests start and stop servers of their own; the
# system's default one is not made.
set -eu

for programs in /usr/lib/postgresql/*/bin; do
    [ -x "$programs/initdb" ] && exit 0
done
command -v initdb >/dev/null && exit 0

if ! command -v apt-get >/dev/null; then
    echo "setup: this system has no apt-get; install a PostgreSQL server (initdb, postgres) with its own package manager." >&2
    exit 1
elif [ "$(id -u)" = 0 ]; then
    as_root="env"
elif command -v sudo >/dev/null; then
    as_root="sudo env"
else
    echo "setup: the tests need a PostgreSQL server; ask an administrator for: apt-get install postgresql" >&2
    exit 1
fi

install="$as_root DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends"
$as_root apt-get update -qq
$install postgresql-common
$as_root sed -i 's/^#* *create_main_cluster.*/create_main_cluster = false/' /etc/postgresql-common/createcluster.conf
$install postgresql
