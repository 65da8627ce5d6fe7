# The two commands a newcomer needs are `cargo run --release -- demo` and `make test`.
.PHONY: test quick demo bench soak lint

test:
	@scripts/test

# The inner loop: SQLite and the log only, without servers and lints.
quick:
	@scripts/test --quick

demo:
	cargo run --release -- demo

bench:
	cargo run --release -p landfall-bench

# Faults against every database and every broker, ten minutes each: docs/operate/soak.md.
soak:
	cargo build --release -p landfall-cli --features full
	cargo run --release -p landfall-system-tests --bin soak
	cargo run --release -p landfall-system-tests --bin soak -- \
	    --broker kafka --broker rabbitmq --broker nats --broker redis

lint:
	scripts/lint-prose
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features landfall-cli/full -- -D warnings
