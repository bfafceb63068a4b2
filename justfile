# One command per wish; all of them are `cargo xtask` or the program itself, so `just` is a comfort
# and not a need.

# All that CI checks.
check:
    cargo xtask check

# What CI checks without running a test.
lint:
    cargo xtask lint

# All tests.
test:
    cargo test --workspace

# Random simulations of every protocol, for a time: `just sim 60s`.
sim time="60s":
    cargo xtask sim {{time}}

# Real clusters whose nodes are killed, for some minutes: `just torture 30`.
torture minutes="10":
    cargo xtask torture {{minutes}}

# redis-py and go-redis against a real cluster, where they are installed.
clients:
    cargo test -p amcast-cli --test clients -- --nocapture

# One simulation again: `just replay tram 4711 --faults all`.
replay protocol seed *more:
    cargo xtask replay {{protocol}} {{seed}} {{more}}

# Each step of each paper's algorithms: code, test, or reason to deviate.
papers:
    cargo xtask papers

# The rules of this repository.
tidy:
    cargo xtask tidy

# A cluster on this machine.
up *args:
    cargo run --release --bin amcast -- up {{args}}

# The API documentation, in the browser.
doc:
    cargo doc --workspace --no-deps --open
