# For ./test and ./bench, which source it.

# Runs an installation that starts no service: Debian's packages ask /usr/sbin/policy-rc.d, and 101 forbids it.
without_services() {
    local policy=/usr/sbin/policy-rc.d sudo=() code
    [ "$(id -u)" -eq 0 ] || sudo=(sudo)
    # The machine's own policy stays as it is.
    [ ! -e "$policy" ] || { "$@"; return; }
    printf '#!/bin/sh\nexit 101\n' | "${sudo[@]}" tee "$policy" >/dev/null && "${sudo[@]}" chmod 755 "$policy"
    ("$@")
    code=$?
    "${sudo[@]}" rm -f "$policy"
    [ "$code" -eq 0 ] || exit "$code"
}
