//! The reverse proxy of `[[idempotent_route]]`, in front of services that know nothing of it.

mod authorize;
mod crashes;
mod faults;
mod fixture;
mod forwarding;
mod keys;
mod routes;
mod smuggling;
