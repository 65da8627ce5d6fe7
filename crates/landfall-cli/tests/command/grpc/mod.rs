//! gRPC: half messages and check-backs, on the port of the HTTP routes.

mod calls;
mod check_back;
mod connections;
mod guards;
