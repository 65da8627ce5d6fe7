# The two commands a newcomer needs are `cargo run --release -- demo` and `make test`.
.PHONY: test demo bench lint

test:
	@scripts/test

demo:
	cargo run --release -- demo

bench:
	cargo run --release -p landfall-bench

lint:
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --features landfall-cli/full -- -D warnings
