//! The gRPC services of Landfall, generated from `proto/landfall/v1`.
//!
//! | service | implemented by | called by |
//! |---|---|---|
//! | [`HalfMessages`](half_messages_server::HalfMessages) | the coordinator, `landfall serve` | senders |
//! | [`CheckBack`](check_back_server::CheckBack) | business services | the coordinator |
//!
//! A Rust business service implements the trait of `landfall::check_back::grpc` instead, which verifies signatures too.

#[allow(
    missing_debug_implementations,
    unreachable_pub,
    clippy::all,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "generated code"
)]
mod generated {
    tonic::include_proto!("landfall.v1");
}

pub use generated::*;

/// The serialized descriptors of all services, for gRPC reflection.
pub const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/descriptors.bin"));
