# shellcheck shell=bash
# xsimd is headers only: a package is unpacked in build/deps, and the system stays as it is.

xsimd_minimum=$(sed -n 's/^set(HEADLANE_XSIMD_MINIMUM \(.*\))$/\1/p' cmake/dependencies.cmake)
xsimd_deps=build/deps/xsimd

at_least() { [[ $(printf '%s\n' "$1" "$2" | sort -V | head -n 1) == "$2" ]]; }

# Succeeds if the folder of headers $1 contains a recent enough xsimd.
xsimd_in() {
  local config=$1/xsimd/config/xsimd_config.hpp
  [[ -e $config ]] && at_least \
    "$(awk '/#define XSIMD_VERSION_(MAJOR|MINOR) / {print $3}' "$config" | paste -sd.)" "$xsimd_minimum"
}

# unpack_package APT-OPTION …: libxsimd-dev, if these package lists have a recent enough one.
unpack_package() {
  local candidate
  candidate=$(apt-cache "$@" policy libxsimd-dev | awk '/Candidate: [0-9]/ {print $2}')
  [[ $candidate ]] && at_least "$candidate" "$xsimd_minimum" || return 1
  (cd "$work" && apt-get "$@" -qq download libxsimd-dev && dpkg -x libxsimd-dev_*.deb unpacked) >&2 ||
    return 1
  headers=$work/unpacked/usr/include/xsimd
}

from_this_release() {
  apt-cache show libxsimd-dev >/dev/null 2>&1 || root apt-get update -qq
  unpack_package -o APT::Sandbox::User=
}

# Debian 13's package on an older Debian: from the site that this machine's apt uses, with separate
# package lists.
from_trixie() {
  local site key=/usr/share/keyrings/debian-archive-keyring.gpg options=(
    -o APT::Sandbox::User= -o Acquire::Languages=none
    -o Dir::Etc::SourceList="$work/sources.list" -o Dir::Etc::SourceParts=/dev/null
    -o Dir::Etc::Preferences=/dev/null -o Dir::Etc::PreferencesParts=/dev/null
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work/cache")
  # shellcheck disable=SC2016  # apt-get's own variables
  site=$(apt-get indextargets --format '$(ORIGIN)/$(LABEL) $(SITE)' |
    awk '$1 == "Debian/Debian" {print $2; exit}')
  [[ $site && -e $key ]] || return 1
  mkdir -p "$work/lists/partial" "$work/cache/archives/partial"
  echo "deb [signed-by=$key] $site trixie main" >"$work/sources.list"
  apt-get "${options[@]}" -qq update >&2 && unpack_package "${options[@]}"
}

# pythran's wheel contains xsimd 14.1. Its version is in pyproject.toml, the wheel's hash here.
from_wheel() {
  need python3=python3 pip3=python3-pip
  local pythran hash=sha256:42ab2039b4eaec01084e92a2721a474e893047ba5ec87b14d45ee077ac883d08
  pythran=$(grep -o 'pythran==[0-9.]*' pyproject.toml)
  echo "$pythran --hash=$hash" >"$work/wheel.txt"
  pip3 download -q --no-deps -d "$work" -r "$work/wheel.txt" >&2 || return 1
  python3 -m zipfile -e "$work"/pythran-*.whl "$work/unpacked" || return 1
  headers=$work/unpacked/pythran/xsimd
}

need_xsimd() {
  local folder source work headers sources=${HEADLANE_XSIMD_FROM:-this_release trixie wheel}
  for folder in $xsimd_deps/include /usr/include /usr/local/include; do
    if xsimd_in "$folder"; then return; fi
  done
  may_install || return 0 # CMake looks in more places, and says what to do
  for source in $sources; do
    work=$(mktemp -d)
    if "from_$source" && xsimd_in "$(dirname "$headers")"; then
      mkdir -p $xsimd_deps/include
      cp -r "$headers" $xsimd_deps/include/
      rm -rf "$work"
      say "xsimd: headers from $source, now in $xsimd_deps"
      return
    fi
    rm -rf "$work"
    say "xsimd $xsimd_minimum or later: not from $source"
  done
  fail "no xsimd $xsimd_minimum or later (tried: $sources)" \
    "put its headers in $PWD/$xsimd_deps/include/xsimd, then run this again"
}
