# The few commands a person types. Thin over cargo and npm; `make` lists them.

.DEFAULT_GOAL := help
NODE_TESTS := e2e/node_modules/.package-lock.json packages/client/node_modules/.package-lock.json packages/react/node_modules/.package-lock.json packages/vue/node_modules/.package-lock.json packages/svelte/node_modules/.package-lock.json packages/solid/node_modules/.package-lock.json packages/server/node_modules/.package-lock.json packages/socket.io/node_modules/.package-lock.json examples/demo/node_modules/.package-lock.json examples/board/node_modules/.package-lock.json packages/admin/node_modules/.package-lock.json

.PHONY: help
help: ## lists the commands
	@grep -hE '^[a-z0-9-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-14s %s\n", $$1, $$2}'

.PHONY: run
run: ## builds the server and starts it on its defaults
	cargo build --locked --release --package tidewire
	exec $(or $(CARGO_TARGET_DIR),target)/release/tidewire start

.PHONY: test
test: $(NODE_TESTS) ## everything that must hold on every commit; SKIP=crash,bench leaves suites out by name
	node --import ./e2e/node_modules/tsx/dist/loader.mjs e2e/all/main.ts

.PHONY: check
check: $(NODE_TESTS) ## format, lints and unit tests; fails if it takes longer than five minutes on a warm build
	node --import ./e2e/node_modules/tsx/dist/loader.mjs e2e/all/check.ts

.PHONY: newcomer
newcomer: $(NODE_TESTS) ## the first minutes of a new user, timed: clones, builds (not timed), runs, and opens two tabs; takes as long as the build
	npm --prefix e2e run --silent newcomer

.PHONY: pages
pages: $(NODE_TESTS) ## builds the web pages that are in the binary, after a change of their sources
	npm --prefix e2e run --silent pages

.PHONY: release
release: $(NODE_TESTS) ## for x86_64 Linux with glibc 2.28 or later, in target/dist: the program with symbols, npm packages, a .deb, a container image, sums
	npm --prefix e2e run --silent release

.PHONY: release-arm64
release-arm64: $(NODE_TESTS) ## untried: the same for arm64 Linux without npm packages, in target/dist-arm64
	npm --prefix e2e run --silent release -- arm64

.PHONY: image-manifest
image-manifest: $(NODE_TESTS) ## untried: joins the images of `make release` and `make release-arm64` into one for both processors
	npm --prefix e2e run --silent release -- manifest

.PHONY: sim
sim: ## the simulation: SEED=N repeats one, SIM_SEEDS=N runs N
	cargo test --locked --package tidewire-core --test sim --test resume --test deferral --test lost -- --nocapture
	cargo test --locked --package tidewire-link --test simulation -- --nocapture

.PHONY: bench
bench: bench-setup ## Tidewire, the null server and all rivals in turn: an HTML report, within an hour; continues where it was stopped
	target/release/tidewire-bench all
	target/release/tidewire-bench cluster --rivals deepstream-redis,socketio-redis

.PHONY: bench-quick
bench-quick: bench-setup ## a part of the same in five minutes
	target/release/tidewire-bench all --quick

.PHONY: bench-setup
bench-setup:
	cargo build --locked --release --package tidewire --package tidewire-bench
	target/release/tidewire-bench setup

.PHONY: fuzz
fuzz: ## fuzzes the decoders for a minute; FUZZ_SECONDS=N for longer, FUZZ_TARGETS="jwt api" for others
	@command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz
	cargo run --locked --manifest-path fuzz/Cargo.toml --no-default-features --bin proof -- clean $(or $(FUZZ_SECONDS),60) $(or $(FUZZ_TARGETS),decode)

.PHONY: audit
audit: ## known vulnerabilities; needs the advisory database, which is fetched
	cargo deny check advisories || { echo "make audit: the advisory database could not be fetched or a crate is affected"; exit 1; }

%/node_modules/.package-lock.json: %/package.json %/package-lock.json
	@command -v node npm >/dev/null || { echo "make test needs Node 20 or later with npm: apt-get install -y nodejs npm"; exit 1; }
	npm --prefix $* ci --no-audit --no-fund

.PHONY: autobahn
autobahn: proof-autobahn ## all 517 WebSocket cases of Autobahn; continues where it was interrupted

.PHONY: proof-autobahn
proof-autobahn: $(NODE_TESTS)
	node --import ./e2e/node_modules/tsx/dist/loader.mjs e2e/all/proof.ts autobahn

.PHONY: proof
proof: ## what takes hours, part by part; each replaces its line in docs/proof.md
	@for part in fuzz fuzz-entries fuzz-links fuzz-rules fuzz-outside fuzz-faults faults rules query query-oracles live-queries sim resume cluster links links-amqp links-kafka links-nats links-redis links-valkey broker-nats broker-redis broker-amqp broker-kafka nodes-direct nodes-nats nodes-redis nodes-amqp nodes-kafka patterns attacks work crash torture torture-nodes torture-nodes-nats torture-nodes-redis torture-nodes-amqp torture-nodes-kafka million million-queries backend-kills deployments upgrades autobahn scale bytes ringless compression backoff schemathesis offline python next browsers demo docs store-speed image release unit; do $(MAKE) --no-print-directory proof-$$part || exit 1; done

proof-%: $(NODE_TESTS)
	@case $* in fuzz*) command -v cargo-fuzz >/dev/null || cargo install --locked cargo-fuzz;; esac
	cargo build --locked --release --workspace
	node --import ./e2e/node_modules/tsx/dist/loader.mjs e2e/all/proof.ts $*
