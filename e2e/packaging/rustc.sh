#!/bin/sh
# The compiler with flags for all crates. Cargo passes RUSTFLAGS only to crates of the program. Macros and build scripts run at compile
# time, and a hash of them is in the program, so they need the same flags.
# shellcheck disable=SC2086
exec "$@" $TIDEWIRE_RUSTC_FLAGS
