#!/bin/sh
# The compiler with flags for all crates. Those of RUSTFLAGS are for what ends in the program only; macros and build scripts run while that is
# compiled, and a hash of them ends in it, too.
# shellcheck disable=SC2086
exec "$@" $TIDEWIRE_RUSTC_FLAGS
