# Functions for reading another suite of the Debian archive without touching the system's apt configuration. Sourced, not run.
# The archive's address always comes from this machine's own apt sources.

# Prints the address of the Debian archive, or fails when apt knows none. Works before the first `apt-get update` too.
debian_archive_address() {
  command -v apt-get >/dev/null || return 1
  apt-get indextargets --no-release-info --format '$(REPO_URI) $(COMPONENT)' 'Created-By: Packages' 2>/dev/null |
    awk '$NF == "main" && $1 ~ /\/debian(\/|$)/ { sub(/\/$/, "", $1); print $1; exit }'
}

# debian_read_suite SUITE WORK_FOLDER [only|keep [ARCHITECTURES [OPTION...]]]: fetches the signed package list of SUITE into WORK_FOLDER and sets
# the array `debian_suite_options`, with which apt-get and apt-cache see only that suite; with `keep` they see the system's own sources as well.
# Further apt options are added to it. The caller deletes WORK_FOLDER.
debian_read_suite() {
  local suite=$1 work=$2 keep=${3:-only} architectures=${4:-$(dpkg --print-architecture)} address
  address=$(debian_archive_address) || address=
  if [ -z "$address" ]; then
    echo "no Debian archive in this machine's apt sources, and suite $suite is needed from one" >&2
    return 1
  fi
  mkdir -p "$work/parts" "$work/lists/partial" "$work/cache/archives/partial"
  if [ "$keep" = keep ]; then
    cp -L /etc/apt/sources.list.d/*.list /etc/apt/sources.list.d/*.sources "$work/parts/" 2>/dev/null || true
    [ -f /etc/apt/sources.list ] && cp /etc/apt/sources.list "$work/parts/system.list"
  fi
  local keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  if [ ! -f "$keyring" ]; then
    echo "$keyring is missing: install the package debian-archive-keyring" >&2
    return 1
  fi
  echo "deb [arch=$architectures target=Packages signed-by=$keyring] $address $suite main" >"$work/parts/chorus-$suite.list"
  debian_suite_options=(-q -o Dir::Etc::sourcelist=- -o "Dir::Etc::sourceparts=$work/parts" -o "Dir::State::Lists=$work/lists"
    -o "Dir::Cache=$work/cache" -o APT::Sandbox::User=root -o Acquire::Languages=none -o Acquire::Retries=3 "${@:5}")
  if ! apt-get "${debian_suite_options[@]}" update >"$work/update.log" 2>&1; then
    cat "$work/update.log" >&2
    echo "the package list of suite $suite could not be read" >&2
    return 1
  fi
}
